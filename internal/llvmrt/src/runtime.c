/* What compilers call by themselves: copies and fills, integers of 128 bits, and
 * rounding where the processor has no instruction for it. There is no C library
 * under a function, so these are linked into its object, those that it needs.
 * go generate compiles this file to bitcode for each processor. A wasm module
 * gets the integers of 128 bits; wherry.h and instructions are there for the rest.
 *
 * Rounding to integers is exact, so every form gives the same answer.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef __UINT64_TYPE__ u64;
typedef __INT64_TYPE__ i64;
typedef __int128 i128;
typedef unsigned __int128 u128;

#ifndef __wasm__
/* ---- Memory. Eight bytes at a time where both ends allow it. ---- */

typedef u64 __attribute__((may_alias, aligned(1))) word;

void *memcpy(void *to, const void *from, u64 n)
{
    u8 *t = to;
    const u8 *f = from;
    for (; n >= 8; n -= 8, t += 8, f += 8)
        *(word *)t = *(const word *)f;
    while (n--)
        *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, u64 n)
{
    u8 *t = to;
    const u8 *f = from;
    if (t <= f || t >= f + n) {
        for (; n >= 8; n -= 8, t += 8, f += 8)
            *(word *)t = *(const word *)f;
        while (n--)
            *t++ = *f++;
        return to;
    }
    for (; n >= 8; n -= 8)
        *(word *)(t + n - 8) = *(const word *)(f + n - 8);
    while (n--)
        t[n] = f[n];
    return to;
}

void *memset(void *to, int byte, u64 n)
{
    u8 *t = to;
    u64 fill = (u8)byte * 0x0101010101010101ul;
    for (; n >= 8; n -= 8, t += 8)
        *(word *)t = fill;
    while (n--)
        *t++ = (u8)byte;
    return to;
}

int memcmp(const void *a, const void *b, u64 n)
{
    const u8 *x = a, *y = b;
    for (; n; n--, x++, y++)
        if (*x != *y)
            return *x < *y ? -1 : 1;
    return 0;
}

int bcmp(const void *a, const void *b, u64 n) { return memcmp(a, b, n); }
#endif

/* ---- Integers of 128 bits. ---- */

static u128 divide(u128 n, u128 d, u128 *rest)
{
    if ((u64)(n >> 64) == 0 && (u64)(d >> 64) == 0 && (u64)d != 0) {
        *rest = (u64)n % (u64)d;
        return (u64)n / (u64)d;
    }
    if (d == 0) /* as division of 64 bits does */
        __builtin_trap();
    u128 q = 0, r = 0;
    for (int bit = 127; bit >= 0; bit--) {
        u128 carry = r >> 127;
        r = r << 1 | (n >> bit & 1);
        if (carry || r >= d) {
            r -= d;
            q |= (u128)1 << bit;
        }
    }
    *rest = r;
    return q;
}

static u128 size(i128 v) { return v < 0 ? -(u128)v : (u128)v; }

u128 __udivti3(u128 n, u128 d) { u128 r; return divide(n, d, &r); }
u128 __umodti3(u128 n, u128 d) { u128 r; divide(n, d, &r); return r; }
i128 __divti3(i128 n, i128 d)
{
    u128 r, q = divide(size(n), size(d), &r);
    return (i128)((n < 0) != (d < 0) ? -q : q);
}
i128 __modti3(i128 n, i128 d)
{
    u128 r;
    divide(size(n), size(d), &r);
    return (i128)(n < 0 ? -r : r);
}

i128 __multi3(i128 a, i128 b)
{
    u64 al = (u64)a, bl = (u64)b, m = 0xffffffff;
    u64 low = (al & m) * (bl & m), mid = (al >> 32) * (bl & m) + (low >> 32);
    u64 mid2 = (al & m) * (bl >> 32) + (mid & m);
    u64 high = (al >> 32) * (bl >> 32) + (mid >> 32) + (mid2 >> 32);
    high += (u64)((u128)a >> 64) * bl + al * (u64)((u128)b >> 64);
    return (i128)((u128)high << 64 | (mid2 << 32 | (low & m)));
}

/* Of halves, as this is what the compiler calls where it has no other way. */
#define SHIFT(name, type, far, near)                            \
    type name(type v, int by)                                   \
    {                                                           \
        u64 low = (u64)v, high = (u64)((u128)v >> 64), l, h;    \
        by &= 127;                                              \
        if (by >= 64) {                                         \
            far;                                                \
        } else if (by == 0) {                                   \
            return v;                                           \
        } else {                                                \
            near;                                               \
        }                                                       \
        return (type)((u128)h << 64 | l);                       \
    }
SHIFT(__ashlti3, i128, (l = 0, h = low << (by - 64)), (l = low << by, h = high << by | low >> (64 - by)))
SHIFT(__lshrti3, u128, (h = 0, l = high >> (by - 64)), (h = high >> by, l = low >> by | high << (64 - by)))
SHIFT(__ashrti3, i128, (h = (u64)((i64)high >> 63), l = (u64)((i64)high >> (by - 64))), (h = (u64)((i64)high >> by), l = low >> by | high << (64 - by)))

i128 __muloti4(i128 a, i128 b, int *over)
{
    u128 x = size(a), y = size(b), low = (u128)(u64)x * (u64)y;
    u64 xh = (u64)(x >> 64), yh = (u64)(y >> 64);
    u128 cross = (u128)xh * (u64)y + (u128)yh * (u64)x; /* of two products one is 0, or it is too much anyway */
    u128 all = low + (cross << 64), most = ((u128)1 << 127) - ((a < 0) == (b < 0));
    *over = (xh && yh) || cross >> 64 || all < low || all > most;
    return (i128)((a < 0) == (b < 0) ? all : -all);
}

/* ---- 128 bits and floats. Half to even, as the hardware rounds 64 bits. ---- */

#define TO_FLOAT(name, type, bits)                                             \
    static type name(u128 v)                                                   \
    {                                                                          \
        int shift = 0;                                                         \
        u128 lost = 0;                                                         \
        while (v >> 64) { /* what is shifted out stays as one sticky bit */    \
            lost |= v & 1;                                                     \
            v >>= 1;                                                           \
            shift++;                                                           \
        }                                                                      \
        type f = (type)((u64)v | (u64)(lost != 0));                            \
        for (; shift; shift--)                                                 \
            f *= 2;                                                            \
        return f;                                                              \
    }
TO_FLOAT(to_double, double, 64)
TO_FLOAT(to_float, float, 64)

double __floatuntidf(u128 v) { return to_double(v); }
float __floatuntisf(u128 v) { return to_float(v); }
double __floattidf(i128 v) { return v < 0 ? -to_double(size(v)) : to_double((u128)v); }
float __floattisf(i128 v) { return v < 0 ? -to_float(size(v)) : to_float((u128)v); }

#define TWO64 18446744073709551616.0
u128 __fixunsdfti(double v)
{
    int shift = 0;
    if (!(v >= 1))
        return 0;
    for (; v >= TWO64 && shift < 64; shift++)
        v /= 2;
    return v >= TWO64 ? ~(u128)0 : (u128)(u64)v << shift;
}
i128 __fixdfti(double v)
{
    const i128 most = (i128)(~(u128)0 >> 1);
    if (v < 0)
        return -v >= TWO64 * 9223372036854775808.0 ? -most - 1 : -(i128)__fixunsdfti(-v);
    return v >= TWO64 * 9223372036854775808.0 ? most : (i128)__fixunsdfti(v);
}
u128 __fixunssfti(float v) { return __fixunsdfti(v); }
i128 __fixsfti(float v) { return __fixdfti(v); }

#ifndef __wasm__
/* ---- Rounding. From 2^52 (2^23) on every float is an integer. ---- */

#define ROUNDING(type, f, whole, integer)                                            \
    static type sign##f(type to, type of)                                            \
    {                                                                                \
        return __builtin_copysign##f(to, of);                                        \
    }                                                                                \
    static int big##f(type x) { return !(__builtin_fabs##f(x) < whole); }            \
    type trunc##f(type x) { return big##f(x) ? x : sign##f((type)(integer)x, x); }   \
    type floor##f(type x)                                                            \
    {                                                                                \
        type t = trunc##f(x);                                                        \
        return t > x ? t - 1 : t;                                                    \
    }                                                                                \
    type ceil##f(type x)                                                             \
    {                                                                                \
        type t = trunc##f(x);                                                        \
        return t < x ? sign##f(t + 1, x) : t;                                        \
    }                                                                                \
    type rint##f(type x)                                                             \
    {                                                                                \
        return big##f(x) ? x : sign##f(__builtin_fabs##f(x) + whole - whole, x);     \
    }                                                                                \
    type nearbyint##f(type x) { return rint##f(x); }                                 \
    type roundeven##f(type x) { return rint##f(x); }
ROUNDING(double, , 4503599627370496.0, i64)
ROUNDING(float, f, 8388608.0f, i64)
#endif
