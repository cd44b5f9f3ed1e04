// Does what its payload says: {u32 op, u32 a, u32 b, u32 c, u64 x, u64 y}. The result
// is a status; values come back by reply.
#include "host.h"
struct order { u32 op, a, b, c; u64 x, y; };
static u64 out[8];
static u32 constructed;
static volatile u32 zero;
EXPORT void _initialize(void) { constructed++; }
static int answer(u64 v) { out[0] = v; return h_reply(ADDR(out), 8); }
__attribute__((noinline)) static u32 deep(u32 n) {
  return n == zero ? 1 : deep(n - 1) * 3 + n;
}
typedef int (*fn)(u32);
static int plus1(u32 x) { return x + 1; }
static int plus2(u32 x) { return x + 2; }
static long long wrong(long long x) { return x; }
static fn volatile table[] = {plus1, plus2, (fn)wrong, 0};
typedef __attribute__((vector_size(16))) u32 v128;
#pragma clang diagnostic ignored "-Wunused-value"

static int traps(struct order *o) {
  switch (o->op) {
  case 0: __builtin_trap();
  case 1: return answer(o->a / zero);
  case 2: return AT(u32, o->a);
  case 3: for (;;) zero = 0;
  case 4: return answer(deep(o->a));
  case 5: return table[o->a](o->b);
  case 6: { volatile double d = 1e300; return __builtin_wasm_trunc_s_i32_f64(d); }
  case 7: { u32 n = 0; while (__builtin_wasm_memory_grow(0, 1) != (unsigned long)-1) n++; return answer(n); }
  case 8: return answer(__builtin_wasm_memory_size(0));
  case 9: return answer(__builtin_wasm_memory_grow(0, o->a));
  case 10: return __builtin_wasm_memory_atomic_wait32((int *)&zero, 0, -1);
  case 11: return answer(__builtin_wasm_memory_atomic_notify((int *)o->a, 1));
  case 12: return answer(constructed);
  case 13: for (u64 i = 0;; i++) { u32 k = o->a; __builtin_memset((void *)k, i, o->b); }
  case 14: for (u64 i = 0;; i++) h_now();
  }
  return -1;
}

static int stores(struct order *o) {
  u32 a = o->a;
  switch (o->op) {
  case 20: AT(u8, a) = o->x; break;
  case 21: AT(unsigned short, a) = o->x; break;
  case 22: AT(u32, a) = o->x; break;
  case 23: AT(u64, a) = o->x; break;
  case 24: AT(float, a) = o->x; break;
  case 25: AT(double, a) = o->x; break;
  case 26: *(v128 *)a = (v128){1, 2, 3, 4}; break;
  case 27: __atomic_fetch_add((u32 *)a, (u32)o->x, __ATOMIC_SEQ_CST); break;
  case 28: __atomic_store_n((u64 *)a, o->x, __ATOMIC_SEQ_CST); break;
  case 29: { u64 e = o->y; __atomic_compare_exchange_n((u64 *)a, &e, o->x, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); break; }
  case 30: __builtin_memset((void *)a, o->c, o->b); break;
  case 31: __builtin_memmove((void *)a, (void *)o->c, o->b); break;
  case 32: { u32 e = o->y; __atomic_compare_exchange_n((u32 *)a, &e, (u32)o->x, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); break; }
  case 33: return answer(AT(u64, a));
  case 34: { u64 s = 0; for (u32 i = 0; i < o->b; i += 8) s = s * 31 + AT(u64, a + i); return answer(s); }
  case 35: { u32 w[4]; int st = h_window(o->b, ADDR(w)); if (st) return st; AT(u64, w[0] + a) = o->x; break; }
  case 36: { u32 w[4]; int st = h_window(o->b, ADDR(w)); if (st) return st; return answer(AT(u64, w[0] + a)); }
  default: return -1;
  }
  return h_reply(ADDR(out), 0);
}

static int calls(struct order *o) {
  switch (o->op) {
  case 40: return answer(h_self());
  case 41: return answer(h_elements());
  case 42: { int e = h_owner(o->x, ADDR(out + 1)); return e < 0 ? e : answer(e * 1000000ull + out[1]); }
  case 43: { int st = h_shard_rows(o->a, ADDR(out + 1)); return st ? st : answer(out[1] * 1000000 + out[2]); }
  case 44: { int st = h_window(o->a, ADDR(out)); return st ? st : h_reply(ADDR(out), 16); }
  case 45: { int st = h_payload(ADDR(out)); return st ? st : h_reply(ADDR(out), 8); }
  case 46: return answer(h_scratch(o->x));
  case 47: return h_reply_part(o->a, o->b);
  case 48: return h_forward(o->c, o->a, o->b);
  case 49: { int st = 0; for (u32 i = 0; i < o->c && !st; i++) st = h_fork(i, o->a, o->b); return st; }
  case 50: return h_get(o->c, 1, o->x, o->a, o->b);
  case 51: return h_put(o->c, 1, o->x, o->a, o->b);
  case 52: { int st = h_atomic(o->c, 1, o->x, o->a, o->b, o->y, 7, ADDR(out + 1)); return st ? st : answer(out[1]); }
  case 53: h_log(o->a, o->b); return 0;
  case 54: return answer(h_now());
  case 55: return answer(h_remaining());
  case 56: return h_owner(0, o->a);
  case 57: return h_shard_rows(0, o->a);
  case 58: return h_window(0, o->a);
  case 59: return h_payload(o->a);
  case 60: return h_atomic(0, 0, 0, 1, 8, 1, 0, o->a);
  case 61: return h_reply(o->a, o->b);
  case 64: { long long row = h_row(o->a, o->x); return row < 0 ? (int)row : answer(row); }
  case 63: { // replies, with something else in between, from a buffer that changes
    out[0] = o->x;
    int first = h_reply(ADDR(out), o->a);
    out[0] = o->y;
    if (o->b) h_log(ADDR(out), o->b);
    int second = h_reply(ADDR(out), o->a);
    out[0] = 0;
    if (o->c) __builtin_trap();
    return first ? first : second;
  }
  case 62: { u8 *s = (u8 *)h_scratch(o->x); if (!s) return -7; u64 sum = 0; for (u64 i = 0; i < o->x; i++) sum += s[i]; for (u64 i = 0; i < o->x; i++) s[i] = o->a; return answer(sum); }
  }
  return -1;
}

EXPORT int wherry_main(u32 p, u32 n) {
  struct order o = *(struct order *)p;
  if (n < sizeof o) return -1;
  if (o.op < 20) return traps(&o);
  if (o.op < 40) return stores(&o);
  return calls(&o);
}
