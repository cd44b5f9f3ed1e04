/* lanes.h: what is done with several rows at once, in vectors of 16 bytes:
 * comparing, and making lists of rows.
 *
 * An access to memory costs an element's checks however long it is
 * (docs/abi.md), so these loops take 16 rows a turn, at the width that the
 * column has.  What they write may reach up to 15 rows behind the last one;
 * registers have room for it. */
#ifndef LANES_H
#define LANES_H

#include "query.h"

typedef uint8_t lanes_t __attribute__((vector_size(16), aligned(1)));
#define LANES(type, name) typedef type name __attribute__((vector_size(16), aligned(1)))
LANES(int8_t, i8_lanes);
LANES(uint8_t, u8_lanes);
LANES(int16_t, i16_lanes);
LANES(uint16_t, u16_lanes);
LANES(int32_t, i32_lanes);
LANES(uint32_t, u32_lanes);
LANES(int64_t, i64_lanes);
LANES(uint64_t, u64_lanes);
LANES(double, f64_lanes);

/* Masks of two vectors as one of lanes half as wide. */
#ifdef __wasm__
#define HALVE16(a, b) ((lanes_t)__builtin_wasm_narrow_s_i8x16_i16x8((i16_lanes)(a), (i16_lanes)(b)))
#define HALVE32(a, b) ((i16_lanes)__builtin_wasm_narrow_s_i16x8_i32x4((i32_lanes)(a), (i32_lanes)(b)))
WHERRY_INLINE uint32_t lane_bits(lanes_t v) { return (uint32_t)__builtin_wasm_bitmask_i8x16((i8_lanes)v); }
#else
#define HALVE16(a, b) __builtin_shufflevector((lanes_t)(a), (lanes_t)(b), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define HALVE32(a, b) __builtin_shufflevector((i16_lanes)(a), (i16_lanes)(b), 0, 2, 4, 6, 8, 10, 12, 14)
WHERRY_INLINE uint32_t lane_bits(lanes_t v)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 16; i++)
        bits |= (uint32_t)(v[i] >> 7) << i;
    return bits;
}
#endif

/* ---- Comparing. ---- */

/* Begins accesses to so many bytes from p on: returns p, by which they are to be made, and reads the last of them. An engine checks the address of an access, but not again within what
 * it has checked, so the others cost nothing if the farthest comes first. The compiler is not told that it is the same p, or it would compute an address for each. */
WHERRY_INLINE const uint8_t *reach(const uint8_t *p, uint32_t bytes)
{
    __asm__("" : "+r"(p));
    (void)*(const volatile uint8_t *)(p + bytes - 1);
    return p;
}

/* d[i] is whether x[i] rel y[i], as 0 or 1, and the opposite if flip is 1. */
#define TURN(lanes, rel, at) (((const lanes *)p)[at] rel OTHER(lanes, at))
#define TURN8(lanes, rel) ((lanes_t)TURN(lanes, rel, 0))
#define TURN16(lanes, rel) HALVE16(TURN(lanes, rel, 0), TURN(lanes, rel, 1))
#define PAIR(lanes, rel, at) HALVE32(TURN(lanes, rel, at), TURN(lanes, rel, at + 1))
#define TURN32(lanes, rel) HALVE16(PAIR(lanes, rel, 0), PAIR(lanes, rel, 2))
#define TURN64(lanes, rel) HALVE16(HALVE32(PAIR(lanes, rel, 0), PAIR(lanes, rel, 2)), HALVE32(PAIR(lanes, rel, 4), PAIR(lanes, rel, 6)))

/* A function of its own has the registers for itself: an engine that compiles in one pass keeps little of a long one in them. */
#define COMPARER(name, type, width, rel)                                                                 \
    static __attribute__((noinline)) void name##_##type(uint8_t *d, const uint8_t *x, const uint8_t *y, uint8_t flip, uint32_t n) \
    {                                                                                                    \
        for (uint32_t i = 0; i < n; i += 16) {                                                           \
            const uint8_t *p = reach(x + (width) / 8 * i, (width) * 2), *r = reach(y + (width) / 8 * i, (width) * 2); \
            *(lanes_t *)(d + i) = (TURN##width(type##_lanes, rel) & 1) ^ flip;                           \
        }                                                                                                \
    }
#define OTHER(lanes, at) ((const lanes *)r)[at]
COMPARER(equal, u8, 8, ==)
COMPARER(equal, i64, 64, ==)
COMPARER(equal, u64, 64, ==)
COMPARER(equal, f64, 64, ==)
COMPARER(before, u8, 8, <)
COMPARER(before, i64, 64, <)
COMPARER(before, u64, 64, <)
COMPARER(before, f64, 64, <)
COMPARER(upto, f64, 64, <=)
#undef OTHER

/* The same where y is a value that all rows share: 16 bytes of it. */
#define FIXED(name, type, width, rel)                                                                    \
    static __attribute__((noinline)) void name##_fixed_##type(uint8_t *d, const uint8_t *x, const uint8_t *y, uint8_t flip, uint32_t n) \
    {                                                                                                    \
        const type##_lanes value = *(const type##_lanes *)y;                                             \
        for (uint32_t i = 0; i < n; i += 16) {                                                           \
            const uint8_t *p = reach(x + (width) / 8 * i, (width) * 2);                                  \
            *(lanes_t *)(d + i) = (TURN##width(type##_lanes, rel) & 1) ^ flip;                           \
        }                                                                                                \
    }
#define OTHER(lanes, at) value
#define ALL_FIXED(type, width) FIXED(equal, type, width, ==) FIXED(before, type, width, <) FIXED(after, type, width, >)
ALL_FIXED(i8, 8)
ALL_FIXED(u8, 8)
ALL_FIXED(i16, 16)
ALL_FIXED(u16, 16)
ALL_FIXED(i32, 32)
ALL_FIXED(u32, 32)
ALL_FIXED(i64, 64)
ALL_FIXED(u64, 64)

#define COMPARE_AS(type, name) \
    case type: name(d, x, y, flip, n); break

/* There are loops for ==, for < and >, and for <= of floats, since a NaN is neither. The others are their opposites. */
WHERRY_INLINE int is_equality(uint32_t op) { return op == OP_EQ2 || op == OP_NE2; }
WHERRY_INLINE int is_reach(uint32_t op) { return op == OP_LE2 || op == OP_GE2; }
WHERRY_INLINE int is_above(uint32_t op) { return op == OP_GT2 || op == OP_GE2; }

/* Compares numbers of 64 bits, or bytes, by OP_EQ2 to OP_GE2. */
static void compare_lanes(uint32_t op, uint32_t type, uint8_t *d, const uint8_t *x, const uint8_t *y, uint32_t n)
{
    int upto = is_reach(op) && type == WHERRY_TYPE_F64;
    uint8_t flip = op == OP_NE2 || (is_reach(op) && !upto);
    if (is_above(op) != flip && !is_equality(op)) {
        const uint8_t *side = x;
        x = y, y = side;
    }
    if (is_equality(op))
        switch (type) {
            COMPARE_AS(WHERRY_TYPE_U8, equal_u8);
            COMPARE_AS(WHERRY_TYPE_I64, equal_i64);
            COMPARE_AS(WHERRY_TYPE_U64, equal_u64);
        default: equal_f64(d, x, y, flip, n);
        }
    else
        switch (type) {
            COMPARE_AS(WHERRY_TYPE_U8, before_u8);
            COMPARE_AS(WHERRY_TYPE_I64, before_i64);
            COMPARE_AS(WHERRY_TYPE_U64, before_u64);
        default:
            if (upto)
                upto_f64(d, x, y, flip, n);
            else
                before_f64(d, x, y, flip, n);
        }
}

#define COMPARE_FIXED(name)                         \
    switch (type) {                                 \
        COMPARE_AS(WHERRY_TYPE_I8, name##_fixed_i8);  \
        COMPARE_AS(WHERRY_TYPE_U8, name##_fixed_u8);  \
        COMPARE_AS(WHERRY_TYPE_I16, name##_fixed_i16); \
        COMPARE_AS(WHERRY_TYPE_U16, name##_fixed_u16); \
        COMPARE_AS(WHERRY_TYPE_I32, name##_fixed_i32); \
        COMPARE_AS(WHERRY_TYPE_U32, name##_fixed_u32); \
        COMPARE_AS(WHERRY_TYPE_I64, name##_fixed_i64); \
    default: name##_fixed_u64(d, x, y, flip, n);    \
    }

/* Compares whole numbers that lie as they do in columns of a type with one, of which y is 16 bytes. */
static void compare_fixed(uint32_t op, uint32_t type, uint8_t *d, const uint8_t *x, const uint8_t *y, uint32_t n)
{
    uint8_t flip = op == OP_NE2 || is_reach(op);
    if (is_equality(op))
        COMPARE_FIXED(equal)
    else if (is_above(op) != flip)
        COMPARE_FIXED(after)
    else
        COMPARE_FIXED(before)
}

/* ---- Lists of rows. ---- */

/* Where the bits of a byte are set, lowest first, a byte each. */
static uint64_t list_places[256];

static void list_open(void)
{
    for (uint32_t m = 1; m < 256; m++)
        list_places[m] = list_places[m & (m - 1)] << 8 | (uint32_t)__builtin_ctz(m);
}

/* Writes those of n rows for which v is 1, and ok besides if it is there, into list, and returns their number. What lies behind them there, 8 places at
 * most, is overwritten. */
static __attribute__((noinline)) uint32_t list_rows(uint16_t *list, const uint8_t *v, const uint8_t *ok, uint32_t n)
{
    uint16_t *to = list;
    for (uint32_t i = 0; i < n; i += 16) {
        lanes_t there = *(const lanes_t *)(v + i);
        if (ok)
            there &= *(const lanes_t *)(ok + i);
        uint32_t bits = lane_bits((lanes_t)-(i8_lanes)there);
        if (n - i < 16)
            bits &= (1u << (n - i)) - 1;
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t byte = bits >> 8 * half & 255;
            typedef uint8_t places_t __attribute__((vector_size(8)));
            places_t places;
            memcpy(&places, list_places + byte, 8);
            u16_lanes rows = __builtin_convertvector(places, u16_lanes) + (uint16_t)(i + 8 * half);
            memcpy(to, &rows, sizeof rows);
            to += __builtin_popcount(byte);
        }
    }
    return (uint32_t)(to - list);
}

#endif
