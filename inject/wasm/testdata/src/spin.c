// A tight loop, a loop of calls and a loop of stores: payload {u32 kind, u32 rounds}, reply u32.
#include "host.h"
static u32 cells[1024];
__attribute__((noinline)) u32 mix(u32 x) { x ^= x << 13; x ^= x >> 17; return x ^ x << 5; }
EXPORT int wherry_main(u32 p, u32 n) {
  u32 kind = ((u32 *)p)[0], rounds = ((u32 *)p)[1], x = 1;
  switch (kind) {
  case 0: while (rounds--) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; } break;
  case 1: while (rounds--) x = mix(x); break;
  case 2: while (rounds--) { cells[x & 1023] = x; x = x * 1664525 + 1013904223; } x = cells[7]; break;
  }
  return h_reply(ADDR(&x), 4);
}
