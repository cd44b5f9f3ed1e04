/* number.h: text to numbers, without a C library. */
#ifndef NUMBER_H
#define NUMBER_H

#include "wherry.h"

/* An integer of any size: sign, magnitude, and whether 64 bits hold that. */
typedef struct {
    int negative, huge;
    uint64_t magnitude;
} integer_t;

/* Decimal, or 0x and hexadecimal; 0 if the text is neither. */
WHERRY_HELPER int parse_integer(const char *s, uint32_t n, integer_t *out)
{
    uint32_t i = 0, base = 10;
    out->negative = out->huge = 0;
    out->magnitude = 0;
    if (i < n && (s[i] == '-' || s[i] == '+'))
        out->negative = s[i++] == '-';
    if (n - i > 2 && s[i] == '0' && (s[i + 1] | 32) == 'x') {
        base = 16;
        i += 2;
    }
    if (i == n)
        return 0;
    for (; i < n; i++) {
        uint32_t c = (uint8_t)s[i], low = c | 32, digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (base == 16 && low >= 'a' && low <= 'f')
            digit = low - 'a' + 10;
        else
            return 0;
        if (out->magnitude > (UINT64_MAX - digit) / base)
            out->huge = 1;
        out->magnitude = out->magnitude * base + digit;
    }
    return 1;
}

/* ---- Correctly rounded decimal to double.  The value is digits x 10^e; as a
 * fraction of two big integers it is scaled by a power of two into [1, 2), and
 * 53 bits of it are taken by comparing and subtracting. ---- */

#define BIG_LIMBS 44    /* 1408 bits: 10^343 times 64 digits, with a bit to spare */
#define MOST_DIGITS 64  /* significant digits that are read; more are refused */

typedef struct {
    uint32_t limb[BIG_LIMBS]; /* least first */
} big_t;

WHERRY_HELPER void big_muladd(big_t *b, uint32_t factor, uint32_t add)
{
    uint64_t carry = add;
    for (uint32_t i = 0; i < BIG_LIMBS; i++) {
        carry += (uint64_t)b->limb[i] * factor;
        b->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

WHERRY_HELPER uint32_t big_bits(const big_t *b)
{
    for (uint32_t i = BIG_LIMBS; i > 0; i--)
        if (b->limb[i - 1])
            return i * 32 - (uint32_t)__builtin_clz(b->limb[i - 1]);
    return 0;
}

WHERRY_HELPER void big_shift(big_t *b, uint32_t bits)
{
    uint32_t words = bits / 32, rest = bits % 32;
    for (uint32_t i = BIG_LIMBS; i > 0; i--) {
        uint64_t v = 0;
        if (i - 1 >= words)
            v = (uint64_t)b->limb[i - 1 - words] << 32;
        if (i - 1 >= words + 1)
            v |= b->limb[i - 2 - words];
        b->limb[i - 1] = (uint32_t)(v << rest >> 32);
    }
}

WHERRY_HELPER int big_less(const big_t *a, const big_t *b)
{
    for (uint32_t i = BIG_LIMBS; i > 0; i--)
        if (a->limb[i - 1] != b->limb[i - 1])
            return a->limb[i - 1] < b->limb[i - 1];
    return 0;
}

WHERRY_HELPER void big_subtract(big_t *a, const big_t *b)
{
    int64_t borrow = 0;
    for (uint32_t i = 0; i < BIG_LIMBS; i++) {
        borrow += (int64_t)a->limb[i] - b->limb[i];
        a->limb[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
}

/* numerator / denominator as a double, both positive; ties go to even. */
WHERRY_HELPER double big_divide(big_t *a, big_t *b)
{
    int32_t exponent = (int32_t)big_bits(a) - (int32_t)big_bits(b);
    if (exponent > 0)
        big_shift(b, (uint32_t)exponent);
    else
        big_shift(a, (uint32_t)-exponent);
    if (big_less(a, b)) {
        big_shift(a, 1);
        exponent--;
    }
    /* Now 1 <= a / b < 2.  Subnormal numbers have fewer bits. */
    int32_t bits = exponent < -1022 ? 53 + (exponent + 1022) : 53;
    if (exponent > 1023)
        return __builtin_inf();
    if (bits < 0)
        return 0;
    uint64_t mantissa = 0;
    for (int32_t i = 0; i < bits; i++) {
        mantissa <<= 1;
        if (!big_less(a, b)) {
            big_subtract(a, b);
            mantissa |= 1;
        }
        big_shift(a, 1);
    }
    /* What is left, in units of half the last place, is a / b. */
    if (big_less(b, a) || (!big_less(a, b) && (mantissa & 1)))
        mantissa++;
    union {
        uint64_t bits;
        double value;
    } u;
    /* Adding carries over into the exponent when the mantissa overflows. */
    if (exponent < -1022)
        u.bits = mantissa;
    else
        u.bits = ((uint64_t)(exponent + 1022) << 52) + mantissa;
    return u.value;
}

WHERRY_HELPER int same_word(const char *s, uint32_t n, const char *word)
{
    uint32_t i = 0;
    for (; i < n && word[i]; i++)
        if ((s[i] | 32) != word[i])
            return 0;
    return i == n && !word[i];
}

/* Decimal with point and exponent, inf, infinity or nan; 0 if the text is none of them. */
WHERRY_HELPER int parse_double(const char *s, uint32_t n, double *out)
{
    static big_t a, b;
    uint32_t i = 0, digits = 0, seen = 0;
    int32_t scale = 0, point = 0, negative = 0, exponent = 0, minus = 0;
    if (i < n && (s[i] == '-' || s[i] == '+'))
        negative = s[i++] == '-';
    if (same_word(s + i, n - i, "inf") || same_word(s + i, n - i, "infinity")) {
        *out = negative ? -__builtin_inf() : __builtin_inf();
        return 1;
    }
    if (same_word(s + i, n - i, "nan")) {
        *out = __builtin_nan("");
        return 1;
    }
    memset(&a, 0, sizeof a);
    for (; i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] == '.' && !point)); i++) {
        if (s[i] == '.') {
            point = 1;
            continue;
        }
        seen = 1;
        scale -= point;
        if (digits == 0 && s[i] == '0')
            continue;
        if (digits++ == MOST_DIGITS)
            return 0;
        big_muladd(&a, 10, (uint32_t)(s[i] - '0'));
    }
    if (!seen)
        return 0;
    if (i < n && (s[i] | 32) == 'e') {
        if (++i < n && (s[i] == '-' || s[i] == '+'))
            minus = s[i++] == '-';
        if (i == n)
            return 0;
        for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            if (exponent < 100000)
                exponent = exponent * 10 + (s[i] - '0');
    }
    if (i != n)
        return 0;
    scale += minus ? -exponent : exponent;
    double v;
    if (digits == 0 || scale + (int32_t)digits < -330)
        v = 0;
    else if (scale + (int32_t)digits > 310)
        v = __builtin_inf();
    else {
        memset(&b, 0, sizeof b);
        b.limb[0] = 1;
        for (; scale > 0; scale--)
            big_muladd(&a, 10, 0);
        for (; scale < 0; scale++)
            big_muladd(&b, 10, 0);
        v = big_divide(&a, &b);
    }
    *out = negative ? -v : v;
    return 1;
}

/* Writes v in decimal, at most 20 bytes, and returns their number. */
WHERRY_HELPER uint32_t print_u64(char *to, uint64_t v)
{
    char digits[20];
    uint32_t n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    for (uint32_t i = 0; i < n; i++)
        to[i] = digits[n - 1 - i];
    return n;
}

#endif
