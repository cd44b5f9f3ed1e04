/* wherry_std.h: what a C library would give a function: memory, text, sorting, mathematics.
 *
 *     #include "wherry.h"
 *     #include "wherry_std.h"
 *
 * All of it is C in this file, so every form of a function gives the same answers.
 *
 * malloc has WHERRY_HEAP_BYTES (1 MiB unless it is defined before), for one run: static variables, the
 * allocator's too, are as declared at every run, so nothing has to be freed at its end.  As wasm it grows as it is used, within
 * "heap_bytes".  What is to last from run to run belongs into wherry_scratch.
 */
#ifndef WHERRY_STD_H
#define WHERRY_STD_H

#include "wherry.h"

/* ---- Memory: powers of two, each size with a list of what was freed. ---- */

#ifndef WHERRY_HEAP_BYTES
#define WHERRY_HEAP_BYTES (1u << 20)
#endif
#define WHERRY_HEAP_HEAD 16u /* bytes before what malloc returns, which is 16-aligned */

#if !defined(__wasm__)
static uint8_t wherry_heap_memory[WHERRY_HEAP_BYTES] __attribute__((aligned(16), unused));
#endif
static uint8_t *wherry_heap_from __attribute__((unused)); /* what was never given out */
static size_t wherry_heap_used __attribute__((unused));
static void *wherry_heap_free[32] __attribute__((unused)); /* by the logarithm of their size */

/* n more bytes, a multiple of 16; NULL if there are none. */
WHERRY_HELPER uint8_t *wherry_heap_more(size_t n)
{
    if (n > WHERRY_HEAP_BYTES - wherry_heap_used)
        return NULL;
#if defined(__wasm__)
    if (!wherry_heap_from)
        wherry_heap_from = (uint8_t *)(__builtin_wasm_memory_size(0) << 16);
    size_t end = (size_t)wherry_heap_from + wherry_heap_used + n, have = __builtin_wasm_memory_size(0) << 16;
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + 0xffff) >> 16) == (size_t)-1)
        return NULL;
#else
    wherry_heap_from = wherry_heap_memory;
#endif
    uint8_t *p = wherry_heap_from + wherry_heap_used;
    wherry_heap_used += n;
    return p;
}

WHERRY_HELPER void *malloc(size_t n)
{
    if (n > WHERRY_HEAP_BYTES - WHERRY_HEAP_HEAD)
        return NULL;
    uint32_t log = 5;
    while (((size_t)1 << log) < n + WHERRY_HEAP_HEAD)
        log++;
    uint8_t *p = (uint8_t *)wherry_heap_free[log];
    if (p)
        wherry_heap_free[log] = *(void **)(p + WHERRY_HEAP_HEAD);
    else if (!(p = wherry_heap_more((size_t)1 << log)))
        return NULL;
    *(uint32_t *)p = log;
    return p + WHERRY_HEAP_HEAD;
}

WHERRY_HELPER void free(void *p)
{
    if (!p)
        return;
    uint8_t *from = (uint8_t *)p - WHERRY_HEAP_HEAD;
    uint32_t log = *(uint32_t *)from & 31;
    *(void **)p = wherry_heap_free[log];
    wherry_heap_free[log] = from;
}

WHERRY_HELPER void *calloc(size_t n, size_t each)
{
    if (each && n > WHERRY_HEAP_BYTES / each)
        return NULL;
    void *p = malloc(n * each);
    return p ? memset(p, 0, n * each) : NULL;
}

WHERRY_HELPER void *realloc(void *p, size_t n)
{
    if (!p)
        return malloc(n);
    size_t had = ((size_t)1 << (*(uint32_t *)((uint8_t *)p - WHERRY_HEAP_HEAD) & 31)) - WHERRY_HEAP_HEAD;
    if (n <= had)
        return p;
    void *to = malloc(n);
    if (!to)
        return NULL;
    memcpy(to, p, had);
    free(p);
    return to;
}

/* ---- Text. ---- */

WHERRY_HELPER size_t strlen(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

WHERRY_HELPER int strncmp(const char *a, const char *b, size_t n)
{
    for (; n; n--, a++, b++)
        if (*a != *b || !*a)
            return (unsigned char)*a - (unsigned char)*b;
    return 0;
}

WHERRY_HELPER int strcmp(const char *a, const char *b) { return strncmp(a, b, (size_t)-1); }

WHERRY_HELPER void *memchr(const void *s, int byte, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    for (; n; n--, p++)
        if (*p == (unsigned char)byte)
            return (void *)p;
    return NULL;
}

WHERRY_HELPER char *strchr(const char *s, int byte) { return (char *)memchr(s, byte, strlen(s) + 1); }

/* The first n bytes that are as those of what, in memory; NULL if there are none. */
WHERRY_HELPER void *memmem(const void *s, size_t n, const void *what, size_t of)
{
    const unsigned char *p = (const unsigned char *)s;
    for (; of <= n; n--, p++)
        if (memcmp(p, what, of) == 0)
            return (void *)p;
    return NULL;
}

WHERRY_HELPER char *strstr(const char *s, const char *what) { return (char *)memmem(s, strlen(s), what, strlen(what)); }

/* ---- Sorting: by heaps, so that no order of what is sorted is slow. ---- */

typedef int (*wherry_compare_t)(const void *, const void *);

WHERRY_HELPER void wherry_exchange(uint8_t *a, uint8_t *b, size_t size)
{
    for (; size; size--, a++, b++) {
        uint8_t c = *a;
        *a = *b;
        *b = c;
    }
}

WHERRY_HELPER void wherry_sink(uint8_t *list, size_t i, size_t n, size_t size, wherry_compare_t compare)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && compare(list + child * size, list + (child + 1) * size) < 0)
            child++;
        if (compare(list + i * size, list + child * size) >= 0)
            return;
        wherry_exchange(list + i * size, list + child * size, size);
    }
}

WHERRY_HELPER void qsort(void *base, size_t n, size_t size, wherry_compare_t compare)
{
    uint8_t *list = (uint8_t *)base;
    for (size_t i = n / 2; i-- > 0;)
        wherry_sink(list, i, n, size, compare);
    for (; n > 1; n--) {
        wherry_exchange(list, list + (n - 1) * size, size);
        wherry_sink(list, 0, n - 1, size, compare);
    }
}

WHERRY_HELPER void *bsearch(const void *key, const void *base, size_t n, size_t size, wherry_compare_t compare)
{
    for (const uint8_t *list = (const uint8_t *)base; n;) {
        const uint8_t *middle = list + n / 2 * size;
        int c = compare(key, middle);
        if (c == 0)
            return (void *)middle;
        if (c > 0) {
            list = middle + size;
            n -= n / 2 + 1;
        } else {
            n /= 2;
        }
    }
    return NULL;
}

/* ---- Mathematics.  exp and log are FreeBSD's (e_exp.c, e_log.c, Sun Microsystems 1993): within one unit in the last place. ---- */

WHERRY_INLINE uint64_t wherry_bits(double x)
{
    uint64_t b;
    __builtin_memcpy(&b, &x, sizeof b);
    return b;
}

WHERRY_INLINE double wherry_double(uint64_t b)
{
    double x;
    __builtin_memcpy(&x, &b, sizeof x);
    return x;
}

#define WHERRY_INF wherry_double(0x7ff0000000000000ull)
#define WHERRY_NAN wherry_double(0x7ff8000000000000ull)

WHERRY_INLINE double fabs(double x) { return __builtin_fabs(x); }

/* x * 2^n, rounded once.  A step down leaves n below -53, so what it rounds, which is below 2^-1022 then, ends as 0. */
WHERRY_HELPER double ldexp(double x, int n)
{
    for (; n > 1000 && x != 0 && x - x == 0; n -= 1000)
        x *= wherry_double((uint64_t)(1023 + 1000) << 52);
    for (; n < -1022 && x != 0 && x - x == 0; n += 969)
        x *= wherry_double((uint64_t)(1023 - 969) << 52);
    return n > 1000 || n < -1022 ? x : x * wherry_double((uint64_t)(1023 + n) << 52);
}

/* The processor's own instruction: the C function's could set errno, which there is not. */
WHERRY_LINK double wherry_sqrt_instruction(double x) __asm__("llvm.sqrt.f64");

WHERRY_INLINE double sqrt(double x) { return wherry_sqrt_instruction(x); }

WHERRY_HELPER double exp(double x)
{
    if (x != x)
        return x;
    if (x > 709.782712893383973096)
        return WHERRY_INF;
    if (x < -745.13321910194110842)
        return 0;
    int k = (int)(1.44269504088896338700 * x + (x < 0 ? -0.5 : 0.5));
    double hi = x - k * 6.93147180369123816490e-01, lo = k * 1.90821492927058770002e-10, r = hi - lo, t = r * r;
    double c = r - t * (1.66666666666666019037e-01 + t * (-2.77777777770155933842e-03 + t * (6.61375632143793436117e-05 +
               t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))));
    return ldexp(1 - ((lo - r * c / (2 - c)) - hi), k);
}

WHERRY_HELPER double log(double x)
{
    if (x != x || x == WHERRY_INF)
        return x;
    if (x < 0)
        return WHERRY_NAN;
    if (x == 0)
        return -WHERRY_INF;
    int k = 0;
    if (x < 2.2250738585072014e-308) {
        x *= 18014398509481984.0; /* 2^54 */
        k = -54;
    }
    uint64_t b = wherry_bits(x);
    k += (int)(b >> 52) - 1023;
    b = (b & 0xfffffffffffffull) | 0x3ff0000000000000ull;
    if (b > 0x3ff6a09e667f3bcdull) { /* sqrt(2) */
        b -= (uint64_t)1 << 52;
        k++;
    }
    double f = wherry_double(b) - 1, s = f / (2 + f), s2 = s * s, s4 = s2 * s2;
    double t1 = s2 * (6.666666666666735130e-01 + s4 * (2.857142874366239149e-01 + s4 * (1.818357216161805012e-01 + s4 * 1.479819860511658591e-01)));
    double t2 = s4 * (3.999999999940941908e-01 + s4 * (2.222219843214978396e-01 + s4 * 1.531383769920937332e-01));
    double r = t1 + t2, half = 0.5 * f * f;
    return k * 6.93147180369123816490e-01 - ((half - (s * (half + r) + k * 1.90821492927058770002e-10)) - f);
}

#endif
