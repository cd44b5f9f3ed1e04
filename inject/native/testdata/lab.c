/* Does what its payload says: struct {u32 op, n; u64 a, b;}.  Tests compile it for this machine. */
#include "wherry.h"

struct order {
    uint32_t op, n;
    uint64_t a, b;
};

static uint64_t counter = 41;
static uint8_t small[1000];
static uint8_t large[1 << 20];
static const char *const words[] = {"alpha", "beta"};
static uint8_t buffer[WHERRY_PART_BYTES];

static volatile uint64_t sink;

__attribute__((noinline)) static uint64_t deep(uint64_t n)
{
    volatile char frame[512];
    frame[n & 511] = 1;
    return n ? deep(n - 1) + frame[0] : 0;
}

__attribute__((noinline)) static void poke(volatile uint8_t *p) { *p = 7; }

static int32_t number(uint64_t v) { return wherry_reply(&v, sizeof v); }

#if defined(__x86_64__)
static int64_t sys(int64_t n, uint64_t a, uint64_t b, uint64_t c)
{
    int64_t r;
    register uint64_t r10 __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return r;
}
#elif defined(__aarch64__)
static int64_t sys(int64_t n, uint64_t a, uint64_t b, uint64_t c)
{
    register int64_t x8 __asm__("x8") = n;
    register uint64_t x0 __asm__("x0") = a;
    register uint64_t x1 __asm__("x1") = b;
    register uint64_t x2 __asm__("x2") = c;
    register uint64_t x3 __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return (int64_t)x0;
}
#else
static int64_t sys(int64_t n, uint64_t a, uint64_t b, uint64_t c) { return (int64_t)(n + a + b + c); }
#endif

static int32_t windows(const struct order *o)
{
    wherry_window_t w;
    WHERRY_TRY(wherry_window(o->n, &w));
    uint64_t *at = (uint64_t *)((uint8_t *)w.addr + o->a);
    if (o->op == 21)
        *at = o->b;
    uint64_t out[3] = {w.size, w.flags, *at};
    return wherry_reply(out, sizeof out);
}

/* The sum of the words of window n at multiples of a, forwards and then backwards, and what a view says. */
static int32_t views(const struct order *o)
{
    wherry_view_t v = {0}, first = {0};
    uint64_t out[6] = {0}, *at;
    out[0] = (uint64_t)wherry_window_at(o->n, 0, &first);
    for (uint64_t i = 0; (at = wherry_at(o->n, &v, i * o->a, 8)); i++)
        out[1] += *at * (i + 1), out[2]++;
    for (uint64_t i = out[2]; i-- > 0 && (at = wherry_at(o->n, &v, i * o->a, 8));)
        out[3] += *at * (i + 1);
    out[4] = first.total, out[5] = (uint64_t)wherry_window_at(o->n, first.total, &first);
    return wherry_reply(out, sizeof out);
}

static int32_t calls(const struct order *o, const void *payload, uint32_t size)
{
    uint64_t v[4] = {0};
    wherry_rows_range_t range = {0};
    wherry_payload_t p;
    switch (o->op) {
    case 30: v[0] = (uint64_t)wherry_self(), v[1] = (uint64_t)wherry_elements(), v[2] = wherry_now(), v[3] = wherry_remaining(); break;
    case 31: v[0] = (uint64_t)wherry_owner(0, o->a, &v[1]); break;
    case 32: v[0] = (uint64_t)wherry_row(0, (int32_t)o->n, o->a); break;
    case 33: v[0] = (uint64_t)wherry_shard_rows(0, (int32_t)o->n, &range), v[1] = range.first, v[2] = range.count; break;
    case 34: v[0] = (uint64_t)wherry_get((int32_t)o->n, 1, o->a, &v[1], 8); break;
    case 62: v[0] = (uint64_t)wherry_get_near((int32_t)o->n, 1, o->a, &v[1], 8); break;
    case 35: v[1] = 77, v[0] = (uint64_t)wherry_put((int32_t)o->n, 1, o->a, &v[1], 8); break;
    case 36: v[0] = (uint64_t)wherry_atomic((int32_t)o->n, 1, o->a, WHERRY_ATOMIC_ADD, 8, o->b, 0, &v[1]); break;
    case 37: wherry_payload(&p), v[0] = p.addr == payload, v[1] = p.size == size; break;
    case 38: wherry_log(words[o->n], 4); break;
    case 52: v[0] = (uint64_t)wherry_owner(o->n, o->a, &v[3]), v[1] = (uint64_t)wherry_row(o->n, 1, o->b), v[2] = (uint64_t)wherry_shard_rows(o->n, 1, &range); break;
    case 53: v[0] = (uint64_t)wherry_fork(o->n, 1, payload, size), v[1] = wherry_random(); break;
    case 39: v[0] = (uint64_t)wherry_fork(0, (int32_t)o->n, payload, size); break;
    }
    return wherry_reply(v, sizeof v);
}

/* What makes the node copy much, once: window 0 as a whole, and the longest messages. */
static void many(const struct order *o)
{
    wherry_window_t w = {0};
    switch (o->op) {
    case 57: wherry_window(0, &w), wherry_get(0, 1, 0, w.addr, (uint32_t)o->a); break;
    case 58: wherry_window(0, &w), wherry_put(0, 1, 0, w.addr, (uint32_t)o->a); break;
    case 59: wherry_reply_part(large, 59 << 10); break;
    case 60: wherry_fork(0, 1, large, 59 << 10); break;
    }
}

static int32_t messages(const struct order *o, const void *payload)
{
    switch (o->op) {
    case 40: return wherry_forward(0, (int32_t)o->n, payload, 24);
    case 41: return wherry_forward(0, (int32_t)o->n, buffer, 200);
    case 54: return wherry_forward(o->n, 1, payload, 24);
    case 42: memset(buffer, 9, sizeof buffer); return wherry_reply(buffer, (uint32_t)o->a);
    case 43: return wherry_reply_part(words[1], 4) ? 1 : wherry_reply(words[0], 5);
    case 44: number(1); return number(2) == WHERRY_ERR_DONE ? WHERRY_OK : 1;
    case 45: return wherry_reply((const void *)o->a, o->n);
    case 46: return wherry_get(0, 1, 0, (void *)o->a, o->n);
    case 47: for (;;) wherry_row(0, 0, 0);
    case 56:
        for (int i = 0; i < 100; i++)
            wherry_get(0, 1, 0, large, 100 << 10);
        return 0;
    case 49: for (;;) wherry_get(0, 1, 0, large, sizeof large); /* the node's time, hardly its own */
    case 48: return number(wherry_get(0, 1, 0, (void *)words, 8)); /* its own constants */
    case 57: case 58: case 59: case 60:
        for (uint32_t i = 0; i < o->n; i++)
            many(o);
        return 0;
    case 61: return wherry_reply(large, o->n);
    }
    return 1;
}

static int32_t scratch(const struct order *o)
{
    uint8_t *s = wherry_scratch(o->a);
    if (!s)
        return WHERRY_ERR_LIMIT;
    uint8_t was = s[0];
    s[0] += 1;
    if (o->op == 51)
        poke(s + o->b);
    return number(was);
}

WHERRY_ENTRY(payload, size)
{
    const struct order *o = payload;
    if (size < sizeof *o)
        return WHERRY_OK;
    switch (o->op) {
    case 1: return wherry_reply(payload, size);
    case 2: small[o->n + 5]++, large[o->n + 500000]++; return number(++counter * 10000 + small[5 + o->n] * 100 + large[500000 + o->n]);
    case 3: return (int32_t)o->n;
    case 10: poke((uint8_t *)o->a); return 0;
    case 11: return number(deep(o->a));
    case 12: for (;;) sink++;
    case 13: __builtin_trap();
    case 14: return number(o->a / o->b);
    case 15: return number((uint64_t)sys((int64_t)o->n, o->a, o->b, 0));
#ifndef __wasm__
    case 16: *(volatile uint32_t *)wherry_main = 0; return 0;
    case 17: ((void (*)(void))buffer)(); return 0;
#endif
    case 18: for (;;) sys((int64_t)o->n, (uint64_t)&sink, 0, 0); /* futex: sleeps until somebody wakes it */
    case 20: case 21: return windows(o);
    case 55: return views(o);
    case 50: case 51: return scratch(o);
    }
    return o->op < 40 || o->op == 52 || o->op == 53 || o->op == 62 ? calls(o, payload, size) : messages(o, payload);
}
