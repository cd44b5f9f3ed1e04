/* The integers that the payload's doubles become, and that they become as floats: each by itself, and in loops that compilers make vectors of. */
#include "wherry.h"

enum { MOST = 128, CASTS = 12 };

static int64_t alone[CASTS + 4][MOST], vectors[CASTS][MOST];
static float floats[MOST];

#define CAST(number, from, to)                                                            \
    static to made##number[MOST];                                                         \
    static __attribute__((noinline)) to one##number(from x) { return (to)x; }             \
    static __attribute__((noinline)) void loop##number(const from *x, uint32_t n)         \
    {                                                                                     \
        for (uint32_t i = 0; i < n; i++)                                                  \
            made##number[i] = (to)x[i];                                                   \
    }                                                                                     \
    static __attribute__((noinline)) void both##number(const from *x, uint32_t n)         \
    {                                                                                     \
        loop##number(x, n);                                                               \
        for (uint32_t i = 0; i < n; i++) {                                                \
            alone[number][i] = (int64_t)one##number(x[i]);                                \
            vectors[number][i] = (int64_t)made##number[i];                                \
        }                                                                                 \
    }

CAST(0, double, int32_t)
CAST(1, double, uint32_t)
CAST(2, double, int64_t)
CAST(3, double, uint64_t)
CAST(4, double, int16_t)
CAST(5, double, uint8_t)
CAST(6, float, int32_t)
CAST(7, float, uint32_t)
CAST(8, float, int64_t)
CAST(9, float, uint64_t)
CAST(10, float, int16_t)
CAST(11, float, uint8_t)

WHERRY_ENTRY(payload, size)
{
    const double *x = payload;
    uint32_t n = size / sizeof *x;
    if (n > MOST)
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t i = 0; i < n; i++) {
        floats[i] = (float)x[i];
        __int128 wide = (__int128)x[i];
        unsigned __int128 whole = (unsigned __int128)floats[i];
        alone[CASTS][i] = (int64_t)wide;
        alone[CASTS + 1][i] = (int64_t)(wide >> 64);
        alone[CASTS + 2][i] = (int64_t)whole;
        alone[CASTS + 3][i] = (int64_t)(whole >> 64);
    }
    both0(x, n), both1(x, n), both2(x, n), both3(x, n), both4(x, n), both5(x, n);
    both6(floats, n), both7(floats, n), both8(floats, n), both9(floats, n), both10(floats, n), both11(floats, n);
    WHERRY_TRY(wherry_reply_part(alone, sizeof alone));
    return wherry_reply(vectors, sizeof vectors);
}
