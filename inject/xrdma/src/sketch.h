/* sketch.h: what stands for very many values in little memory, and can be put
 * together from several elements.
 *
 * Quantiles: levels of buffers; a value of level l stands for 2^l.  A buffer
 * that is full is sorted, and every other value of it goes one level up, the odd
 * and the even ones in turns (Agarwal, Cormode, Huang, Phillips, Wei and Yi:
 * Mergeable summaries, 2012).  Up to SKETCH_ROOM values it is exact; of more
 * the rank is off by a few parts in a thousand.
 *
 * Numbers of distinct values: the greatest number of leading zeros in the
 * hashes of each of 2,048 parts (Flajolet, Fusy, Gandouet and Meunier:
 * HyperLogLog, 2007), off by 2.3 % as a rule. */
#ifndef SKETCH_H
#define SKETCH_H

#include "query.h"

#define SKETCH_LEVELS 40u
#define SKETCH_FIRST 16u
#define SKETCH_ROOM 512u
#define PARTS 2048u
#define PART_BITS 11u

typedef struct {
    uint64_t *value[SKETCH_LEVELS];
    uint16_t used[SKETCH_LEVELS], room[SKETCH_LEVELS];
    uint64_t odd; /* a bit for each level: which half goes up next */
} sketch_t;

/* Shell's sort, with Ciura's distances. */
static void sort_words(uint64_t *v, uint32_t n)
{
    static const uint16_t gaps[] = {301, 132, 57, 23, 10, 4, 1};
    for (uint32_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (uint32_t i = gaps[g]; i < n; i++) {
            uint64_t x = v[i];
            uint32_t j = i;
            for (; j >= gaps[g] && v[j - gaps[g]] > x; j -= gaps[g])
                v[j] = v[j - gaps[g]];
            v[j] = x;
        }
}

static int32_t sketch_add(sketch_t *s, uint32_t level, uint64_t x)
{
    if (level >= SKETCH_LEVELS)
        return WHERRY_ERR_ARGUMENT;
    if (s->used[level] == s->room[level] && s->room[level] < SKETCH_ROOM) {
        uint32_t more = !s->room[level] && level ? SKETCH_ROOM : s->room[level] ? s->room[level] * 4 : SKETCH_FIRST;
        more = more > SKETCH_ROOM ? SKETCH_ROOM : more;
        uint64_t *v = room(more * sizeof *v);
        if (!v)
            return full();
        memcpy(v, s->value[level], s->used[level] * sizeof *v);
        s->value[level] = v;
        s->room[level] = (uint16_t)more;
    }
    if (s->used[level] == SKETCH_ROOM) {
        sort_words(s->value[level], SKETCH_ROOM);
        s->odd ^= (uint64_t)1 << level;
        s->used[level] = 0;
        for (uint32_t i = s->odd >> level & 1; i < SKETCH_ROOM; i += 2)
            WHERRY_TRY(sketch_add(s, level + 1, s->value[level][i]));
    }
    s->value[level][s->used[level]++] = x;
    return WHERRY_OK;
}

/* The least value such that this part of all, at least one, is not greater. */
static uint64_t sketch_quantile(sketch_t *s, double part)
{
    uint16_t next[SKETCH_LEVELS] = {0};
    uint64_t all = 0, x = 0;
    for (uint32_t l = 0; l < SKETCH_LEVELS; l++) {
        all += (uint64_t)s->used[l] << l;
        sort_words(s->value[l], s->used[l]);
    }
    double rank = part * (double)all;
    for (uint64_t seen = 0; seen < all;) {
        uint32_t least = SKETCH_LEVELS;
        for (uint32_t l = 0; l < SKETCH_LEVELS; l++)
            if (next[l] < s->used[l] && (least == SKETCH_LEVELS || s->value[l][next[l]] < s->value[least][next[least]]))
                least = l;
        x = s->value[least][next[least]++];
        seen += (uint64_t)1 << least;
        if ((double)seen >= rank)
            break;
    }
    return x;
}

/* Values in an order of their own as numbers without a sign, and back. */
WHERRY_INLINE uint64_t ranked(uint32_t kind, uint64_t x)
{
    if (kind == K_FLOAT) {
        x = one_zero(x);
        return x >> 63 ? ~x : x | (uint64_t)1 << 63;
    }
    return kind == K_INT ? x ^ (uint64_t)1 << 63 : x;
}

WHERRY_INLINE uint64_t unranked(uint32_t kind, uint64_t x)
{
    if (kind == K_FLOAT)
        return x >> 63 ? x & ~((uint64_t)1 << 63) : ~x;
    return kind == K_INT ? x ^ (uint64_t)1 << 63 : x;
}

static void parts_add(uint8_t *parts, uint64_t hash)
{
    hash = wherry_mix(hash ^ 0x9e3779b97f4a7c15u); /* hashes of numbers spread well below only */
    uint64_t rest = hash << PART_BITS | (uint64_t)1 << (PART_BITS - 1);
    uint8_t zeros = (uint8_t)(__builtin_clzll(rest) + 1);
    uint8_t *p = parts + (hash >> (64 - PART_BITS));
    if (*p < zeros)
        *p = zeros;
}

/* The natural logarithm of x >= 1. */
static double logarithm(double x)
{
    double whole = 0;
    for (; x > 2; x /= 2)
        whole += 0.6931471805599453;
    double y = (x - 1) / (x + 1), power = y, sum = 0;
    for (uint32_t i = 1; i < 40; i += 2, power *= y * y)
        sum += power / i;
    return whole + 2 * sum;
}

static uint64_t parts_count(const uint8_t *parts)
{
    double sum = 0, m = PARTS;
    uint32_t empty = 0;
    for (uint32_t i = 0; i < PARTS; i++) {
        empty += parts[i] == 0;
        sum += 1 / (double)((uint64_t)1 << parts[i]);
    }
    double count = 0.7213 / (1 + 1.079 / m) * m * m / sum;
    if (count < 2.5 * m && empty)
        count = m * logarithm(m / empty);
    return (uint64_t)(count + 0.5);
}

#endif
