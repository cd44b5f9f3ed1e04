/* sums.h: the loops that add up a vector's numbers, which is what most queries without groups are made of. */
#ifndef SUMS_H
#define SUMS_H

#include "vectors.h"

/* Numbers of 64 bits as two sums of their halves, and how many are negative: 2,048 halves do not overflow. */
typedef struct {
    uint64_t low, high, below;
} halves_t;

#define ADD_HALVES(x) \
    low += (x) & UINT32_MAX, high += (x) >> 32, below += (x) >> 63

static __attribute__((noinline)) void sum_words(halves_t *to, const uint64_t *v, uint32_t n)
{
    uint64_t low = 0, high = 0, below = 0;
    for (uint32_t i = 0; i < n; i++)
        ADD_HALVES(v[i]);
    *to = (halves_t){low, high, below};
}

#define LISTED(at, one)                                        \
    do {                                                       \
        uint32_t i = 0;                                        \
        for (; i + 4 <= n; i += 4) {                           \
            uint64_t at = word_at((const uint8_t *)(sel + i)); \
            uint64_t a = v[at & 0xffff], b = v[at >> 16 & 0xffff], c = v[at >> 32 & 0xffff], d = v[at >> 48]; \
            one(a);                                            \
            one(b);                                            \
            one(c);                                            \
            one(d);                                            \
        }                                                      \
        for (; i < n; i++)                                     \
            one(v[sel[i]]);                                    \
    } while (0)

static __attribute__((noinline)) void sum_listed(halves_t *to, const uint64_t *v, const uint16_t *sel, uint32_t n)
{
    uint64_t low = 0, high = 0, below = 0;
    LISTED(four, ADD_HALVES);
    *to = (halves_t){low, high, below};
}

/* The same where the sum fits into 64 bits. */
static __attribute__((noinline)) uint64_t sum_small(const uint64_t *v, const uint16_t *sel, uint32_t n)
{
    uint64_t sum = 0;
#define ADD(x) sum += (x)
    if (sel)
        LISTED(four, ADD);
    else
        for (uint32_t i = 0; i < n; i++)
            ADD(v[i]);
    return sum;
}

static __attribute__((noinline)) double sum_floats(const double *f, const uint16_t *sel, uint32_t n)
{
    double part[4] = {0, 0, 0, 0};
    uint32_t i = 0;
    if (sel)
        for (; i + 4 <= n; i += 4) {
            uint64_t four = word_at((const uint8_t *)(sel + i));
            part[0] += f[four & 0xffff];
            part[1] += f[four >> 16 & 0xffff];
            part[2] += f[four >> 32 & 0xffff];
            part[3] += f[four >> 48];
        }
    else
        for (; i + 4 <= n; i += 4)
            for (uint32_t j = 0; j < 4; j++)
                part[j] += f[i + j];
    for (; i < n; i++)
        part[0] += f[sel ? sel[i] : i];
    return (part[0] + part[1]) + (part[2] + part[3]);
}

/* The widening of the lower or the upper half of a vector's lanes, by their signs. */
typedef int8_t i8_half __attribute__((vector_size(8)));
typedef int16_t i16_half __attribute__((vector_size(8)));
typedef int32_t i32_half __attribute__((vector_size(8)));
#define WIDE8(m, ...) __builtin_convertvector((i8_half)__builtin_shufflevector(m, m, __VA_ARGS__), i16_lanes)
#define WIDE16(m, ...) __builtin_convertvector((i16_half)__builtin_shufflevector(m, m, __VA_ARGS__), i32_lanes)
#define WIDE32(m, ...) __builtin_convertvector((i32_half)__builtin_shufflevector(m, m, __VA_ARGS__), i64_lanes)

/* Adds those of 4 numbers from number at on for which m, of 32 bits each, is -1. */
#define ADD_FOUR(m, at)                                                  \
    do {                                                                 \
        i32_lanes four = (m);                                            \
        sum += WIDE32(four, 0, 1) & ((const i64_lanes *)p)[(at) / 2];     \
        sum += WIDE32(four, 2, 3) & ((const i64_lanes *)p)[(at) / 2 + 1]; \
    } while (0)

/* The sum of those of n numbers for which mask is 1, where it fits into 64 bits. */
static __attribute__((noinline)) uint64_t sum_masked(const uint8_t *v, const uint8_t *mask, uint32_t n)
{
    i64_lanes sum = {0, 0};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const uint8_t *p = reach(v + 8 * i, 128);
        i8_lanes m = -*(const i8_lanes *)(mask + i);
        i16_lanes low = WIDE8(m, 0, 1, 2, 3, 4, 5, 6, 7), high = WIDE8(m, 8, 9, 10, 11, 12, 13, 14, 15);
        ADD_FOUR(WIDE16(low, 0, 1, 2, 3), 0);
        ADD_FOUR(WIDE16(low, 4, 5, 6, 7), 4);
        ADD_FOUR(WIDE16(high, 0, 1, 2, 3), 8);
        ADD_FOUR(WIDE16(high, 4, 5, 6, 7), 12);
    }
    uint64_t all = (uint64_t)sum[0] + (uint64_t)sum[1];
    for (; i < n; i++)
        all += word_at(v + 8 * i) & (0 - (uint64_t)mask[i]);
    return all;
}

#endif
