/* faults: does one wrong thing, the one its payload asks for. */
#include "wherry.h"

typedef struct {
    uint32_t op, a;
    uint64_t b;
} order_t;

static uint8_t buffer[128 << 10];
static volatile int zero;

static __attribute__((noinline)) uint64_t recurse(uint64_t n)
{
    volatile uint64_t here[32];
    here[n % 32] = n;
    return recurse(n + 1) + here[n % 32];
}

static void spin(uint64_t ns)
{
    for (uint64_t until = wherry_now() + ns; wherry_now() < until;)
        ;
}

static int32_t window_byte(uint32_t index, uint64_t offset, volatile uint8_t **at)
{
    wherry_window_t w;
    WHERRY_TRY(wherry_window(index, &w));
    *at = (volatile uint8_t *)w.addr + offset;
    return WHERRY_OK;
}

WHERRY_ENTRY(payload, size)
{
    const order_t *o = (const order_t *)payload;
    volatile uint8_t *at;
    uint64_t old = 0;
    if (size < sizeof *o)
        return WHERRY_ERR_ARGUMENT;
    switch (o->op) {
    case 0: /* nothing wrong */
        return wherry_reply(payload, size);
    case 1:
        __builtin_trap();
    case 2:
        return (int32_t)size / zero;
    case 3: /* beyond the memory */
        return *(volatile uint8_t *)0xfffffff0;
    case 4:
        for (;;)
            zero = 0;
    case 5: /* all the heap there is; then it says how much that was */
        while (__builtin_wasm_memory_grow(0, 1) != (uintptr_t)-1)
            ;
        return (int32_t)__builtin_wasm_memory_size(0);
    case 6:
        return (int32_t)recurse(o->b);
    case 7: /* a store to window a at offset b, which need not be inside */
        WHERRY_TRY(window_byte(o->a, o->b, &at));
        *at = 0xee;
        return wherry_reply(NULL, 0);
    case 8: /* a load from there */
        WHERRY_TRY(window_byte(o->a, o->b, &at));
        buffer[0] = *at;
        return wherry_reply(buffer, 1);
    case 9: /* parts of a bytes until that fails */
        for (;;)
            WHERRY_TRY(wherry_reply_part(buffer, o->a));
    case 10: /* one reply of a bytes */
        return wherry_reply(buffer, o->a);
    case 11: /* a lines of 1000 bytes */
        for (uint32_t i = 0; i < sizeof buffer; i++)
            buffer[i] = 'x';
        for (uint32_t i = 0; i < o->a; i++)
            wherry_log((const char *)buffer, 1000);
        return wherry_reply(NULL, 0);
    case 12: /* b bytes of scratch */
        return wherry_scratch(o->b) ? wherry_reply(NULL, 0) : WHERRY_ERR_LIMIT;
    case 13: /* a payload of b bytes, to element a */
        return wherry_forward(0, (int32_t)o->a, buffer, (uint32_t)o->b);
    case 14:
        return wherry_fork(0, (int32_t)o->a, buffer, (uint32_t)o->b);
    case 15:
        spin(o->b);
        return wherry_reply(payload, size);
    case 16: /* get, put and an atomic on window 0 of element a */
        WHERRY_TRY(wherry_get((int32_t)o->a, 0, o->b, buffer, 8));
        return wherry_reply(buffer, 8);
    case 17:
        WHERRY_TRY(wherry_put((int32_t)o->a, 0, o->b, "\xee\xee\xee\xee\xee\xee\xee\xee", 8));
        return wherry_reply(NULL, 0);
    case 18:
        WHERRY_TRY(wherry_atomic((int32_t)o->a, 0, o->b, WHERRY_ATOMIC_ADD, 8, 1, 0, &old));
        return wherry_reply(&old, 8);
    case 19: /* a store to every page from the first one on */
        for (volatile uint8_t *p = (volatile uint8_t *)0x20000;; p += 65536)
            *p = 0xee;
    case 21: { /* the range of rows of element a */
        wherry_rows_range_t range;
        WHERRY_TRY(wherry_shard_rows(0, (int32_t)o->a, &range));
        return wherry_reply(&range, sizeof range);
    }
    case 22: { /* row b of element a, and who it says owns that */
        int64_t row = wherry_row(0, (int32_t)o->a, o->b);
        if (row < 0)
            return (int32_t)row;
        uint64_t answer[3] = {(uint64_t)row, 0, 0};
        answer[1] = (uint64_t)(int64_t)wherry_owner(0, (uint64_t)row, &answer[2]);
        return wherry_reply(answer, sizeof answer);
    }
    case 23: /* gets from window 0 of element a, again and again, for b nanoseconds */
        old = wherry_now() + o->b;
        do
            WHERRY_TRY(wherry_get((int32_t)o->a, 0, 0, buffer, 8));
        while (wherry_now() < old);
        return wherry_reply(buffer, 8);
    case 24: /* logs what follows the order, at element a, and ends with status b */
        if (wherry_self() != (int32_t)o->a)
            return wherry_forward(0, (int32_t)o->a, payload, size);
        wherry_log("not this", 8);
        wherry_log((const char *)(o + 1), size - sizeof *o);
        return o->b == 1 << 20 ? (__builtin_trap(), 0) : (int32_t)o->b ? (int32_t)o->b : wherry_reply(NULL, 0);
    case 20: /* forwards itself; whatever it tries after that must not work */
        WHERRY_TRY(wherry_forward(0, (int32_t)o->a, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
        if (wherry_forward(0, (int32_t)o->a, payload, size) != WHERRY_ERR_DONE)
            return 97;
        if (wherry_fork(0, (int32_t)o->a, payload, size) != WHERRY_ERR_DONE)
            return 98;
        return wherry_reply_part(payload, size) == WHERRY_ERR_DONE ? WHERRY_OK : 99;
    }
    return WHERRY_ERR_UNSUPPORTED;
}
