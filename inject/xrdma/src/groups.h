/* groups.h: groups and their states in scratch.
 *
 * A group is u64 words: its hash, a bit for each key that is missing, the keys
 * (two words for text and decimals), and the states.  Each state begins with how many
 * values went into it; F_APPROX and F_QUANTILE have where their sketch lies. */
#ifndef GROUPS_H
#define GROUPS_H

#include "sketch.h"
#include "vectors.h"

#define BLOCK_BYTES (64u << 10)
#define HASH_FIRST 1024u

typedef struct {
    uint64_t hash, missing;
} group_t;

/* A value that a group has, for F_DISTINCT. */
typedef struct {
    uint64_t hash;
    uint32_t group, state;
    value_t v;
} member_t;

WHERRY_INLINE uint64_t *state_of(uint32_t group, uint32_t k) { return (uint64_t *)(uintptr_t)(group + q.state_at[k]); }
WHERRY_INLINE uint64_t *key_of(uint32_t group, uint32_t k) { return (uint64_t *)(uintptr_t)(group + q.key_at[k]); }

WHERRY_INLINE uint32_t kind_words(uint32_t kind) { return kind == K_TEXT || kind == K_DECIMAL ? 2 : 1; }

static uint32_t state_words(const state_spec_t *s)
{
    switch (s->fn) {
    case F_COUNT:
    case F_DISTINCT: return 1;
    case F_APPROX:
    case F_QUANTILE: return 2;
    case F_LEAST:
    case F_MOST: return 1 + kind_words(s->kind);
    }
    return 3;
}

/* Where things lie in a group. */
static void groups_layout(void)
{
    uint32_t at = sizeof(group_t);
    for (uint32_t k = 0; k < q.p->keys; k++) {
        q.key_at[k] = at;
        at += 8 * kind_words(q.key[k].kind);
    }
    for (uint32_t k = 0; k < q.p->states; k++) {
        q.state_at[k] = at;
        at += 8 * state_words(q.state + k);
    }
    q.stride = at;
}

/* ---- Hash tables. ---- */

WHERRY_INLINE uint32_t tag_of(uint64_t hash) { return (uint32_t)hash; }
WHERRY_INLINE uint32_t slot_of(const hash_t *h, uint64_t hash) { return (uint32_t)(hash >> 32) & (h->slots - 1); }

/* Makes room for n more; every entry begins with its hash. */
static int32_t hash_grow(hash_t *h, uint32_t n)
{
    uint32_t slots = h->slots ? h->slots : HASH_FIRST;
    while (h->used + n > slots / 2)
        slots *= 2;
    if (slots == h->slots)
        return WHERRY_OK;
    slot_t *old = h->slot, *slot = room((uint64_t)slots * sizeof *slot);
    uint32_t had = h->slots;
    if (!slot)
        return full();
    h->slot = slot;
    h->slots = slots;
    for (uint32_t i = 0; i < had; i++) {
        if (!old[i].at)
            continue;
        uint32_t s = slot_of(h, *(const uint64_t *)(uintptr_t)old[i].at);
        while (slot[s].at)
            s = (s + 1) & (slots - 1);
        slot[s] = old[i];
    }
    return WHERRY_OK;
}

/* ---- Finding a vector's groups. ---- */

/* A block with room for one more; NULL if there is none left. */
static void *block_add(void)
{
    keep_t *k = q.keep;
    block_t *b = k->last;
    if (!b || b->used == b->room) {
        uint32_t most = BLOCK_BYTES / q.stride, want = k->total < 64 ? 16 : most ? most : 1;
        b = room(sizeof *b + (uint64_t)want * q.stride);
        if (!b)
            return NULL;
        b->next = NULL;
        b->used = 0;
        b->room = want;
        if (k->last)
            k->last->next = b;
        else
            k->first = b;
        k->last = b;
    }
    k->total++;
    return (uint8_t *)(b + 1) + (uint64_t)b->used++ * q.stride;
}

static void hash_keys(uint32_t n)
{
    int any = 0;
    for (uint32_t k = 0; k < q.p->keys; k++)
        any |= q.reg[q.key[k].reg].nulls != 0;
    if (any)
        memset(q.missing, 0, n * sizeof *q.missing);
    for (uint32_t k = 0; k < q.p->keys; k++) {
        const reg_t *r = q.reg + q.key[k].reg;
        uint32_t kind = q.key[k].kind;
        uint64_t *to = q.plain[k];
        if (kind == K_INT || kind == K_UINT) {
            const uint64_t *v = r->v;
            for (uint32_t i = 0; i < n; i++)
                to[i] = v[i];
        } else if (kind == K_FLOAT) {
            const uint64_t *v = r->v;
            for (uint32_t i = 0; i < n; i++)
                to[i] = one_zero(v[i]);
        } else if (kind == K_BOOL) {
            const uint8_t *v = r->v;
            for (uint32_t i = 0; i < n; i++)
                to[i] = v[i];
        } else
            for (uint32_t i = 0; i < n; i++)
                to[i] = r->nulls && !r->ok[i] ? 0 : hash_value(kind, value_of(kind, r, i));
        if (r->nulls)
            for (uint32_t i = 0; i < n; i++) {
                to[i] = r->ok[i] ? to[i] : 0;
                q.missing[i] |= (uint64_t)!r->ok[i] << k;
            }
        if (k == 0)
            for (uint32_t i = 0; i < n; i++)
                q.hash[i] = wherry_mix(to[i]);
        else
            for (uint32_t i = 0; i < n; i++)
                q.hash[i] = wherry_mix(q.hash[i] * 31 ^ to[i]);
    }
    if (any)
        for (uint32_t i = 0; i < n; i++)
            q.hash[i] ^= q.missing[i] * 0x9e3779b97f4a7c15u;
    else
        memset(q.missing, 0, n * sizeof *q.missing);
}

/* The value of key k in row i, as groups have it. */
WHERRY_INLINE value_t key_value(uint32_t k, uint32_t i)
{
    uint32_t kind = q.key[k].kind;
    if (q.missing[i] >> k & 1)
        return (value_t){0, 0};
    if (kind == K_TEXT || kind == K_DECIMAL)
        return value_of(kind, q.reg + q.key[k].reg, i);
    return (value_t){q.plain[k][i], 0};
}

WHERRY_INLINE int same_key(uint32_t kind, const uint64_t *key, value_t v)
{
    if (kind == K_TEXT)
        return key[1] == v.b && same_text((const uint8_t *)(uintptr_t)key[0], (const uint8_t *)(uintptr_t)v.a, (uint32_t)v.b);
    return key[0] == v.a && (kind != K_DECIMAL || key[1] == v.b);
}

WHERRY_INLINE int same_group(uint32_t group, uint32_t i)
{
    const group_t *g = (const group_t *)(uintptr_t)group;
    if (g->hash != q.hash[i] || g->missing != q.missing[i])
        return 0;
    for (uint32_t k = 0; k < q.p->keys; k++)
        if (!same_key(q.key[k].kind, key_of(group, k), key_value(k, i)))
            return 0;
    return 1;
}

WHERRY_INLINE void set_key(uint32_t group, uint32_t k, value_t v)
{
    uint64_t *key = key_of(group, k);
    key[0] = v.a;
    if (kind_words(q.key[k].kind) == 2)
        key[1] = v.b;
}

/* The group of row i, which is not where its hash says. */
static uint32_t find_group(uint32_t i)
{
    hash_t *h = &q.keep->groups;
    uint32_t s = slot_of(h, q.hash[i]), tag = tag_of(q.hash[i]);
    for (; h->slot[s].at; s = (s + 1) & (h->slots - 1))
        if (h->slot[s].tag == tag && same_group(h->slot[s].at, i))
            return h->slot[s].at;
    group_t *g = block_add();
    if (!g)
        return 0;
    memset(g, 0, q.stride);
    g->hash = q.hash[i];
    g->missing = q.missing[i];
    uint32_t at = (uint32_t)(uintptr_t)g;
    for (uint32_t k = 0; k < q.p->keys; k++)
        set_key(at, k, key_value(k, i));
    h->slot[s] = (slot_t){tag, at};
    h->used++;
    return at;
}

/* Each row's group, in q.at.  First the slots of all rows are looked at, then their groups: the processor waits for many at once. */
static int32_t find_groups(uint32_t n)
{
    hash_t *h = &q.keep->groups;
    hash_keys(n);
    WHERRY_TRY(hash_grow(h, n));
    for (uint32_t i = 0; i < n; i++) {
        slot_t s = h->slot[slot_of(h, q.hash[i])];
        q.at[i] = s.tag == tag_of(q.hash[i]) ? s.at : 0;
    }
    for (uint32_t i = 0; i < n; i++)
        if ((!q.at[i] || !same_group(q.at[i], i)) && !(q.at[i] = find_group(i)))
            return full();
    return WHERRY_OK;
}

/* The group of all rows. */
static int32_t only_group(void)
{
    if (q.keep->first)
        return WHERRY_OK;
    group_t *g = block_add();
    if (!g)
        return full();
    memset(g, 0, q.stride);
    return WHERRY_OK;
}

/* ---- States. ---- */

WHERRY_INLINE int add_wide(uint64_t *s, uint64_t low, uint64_t high)
{
    uint64_t carry = __builtin_add_overflow(s[0], low, &s[0]), before = s[1];
    s[1] += high + carry;
    return (int64_t)((before ^ s[1]) & (high ^ s[1])) < 0; /* it overflows as a number with a sign */
}

/* Text that lies in a message is copied before it is kept. */
static int own_text(uint32_t kind, value_t *v)
{
    if (kind != K_TEXT || !q.foreign || !v->b)
        return 1;
    void *copy = room(v->b);
    if (!copy)
        return 0;
    memcpy(copy, (const void *)(uintptr_t)v->a, (size_t)v->b);
    v->a = (uint64_t)(uintptr_t)copy;
    return 1;
}

static int32_t member_add(uint32_t group, uint32_t state, value_t v)
{
    hash_t *h = &q.keep->values;
    uint32_t kind = q.state[state].kind;
    if (kind == K_FLOAT)
        v.a = one_zero(v.a);
    uint64_t hash = wherry_mix(hash_value(kind, v) ^ ((uint64_t)group << 8 | state) * 0x9e3779b97f4a7c15u);
    WHERRY_TRY(hash_grow(h, 1));
    uint32_t s = slot_of(h, hash), tag = tag_of(hash);
    for (; h->slot[s].at; s = (s + 1) & (h->slots - 1)) {
        const member_t *m = (const member_t *)(uintptr_t)h->slot[s].at;
        if (h->slot[s].tag == tag && m->hash == hash && m->group == group && m->state == state && same_key(kind, &m->v.a, v))
            return WHERRY_OK;
    }
    member_t *m = room(sizeof *m);
    if (!m || !own_text(kind, &v))
        return full();
    *m = (member_t){hash, group, state, v};
    h->slot[s] = (slot_t){tag, (uint32_t)(uintptr_t)m};
    h->used++;
    state_of(group, state)[0]++;
    return WHERRY_OK;
}

/* What a state's second word points to, made at the first value. */
static void *sketch_of(uint64_t *s, uint32_t bytes)
{
    if (!s[1]) {
        void *made = room(bytes);
        if (!made)
            return NULL;
        memset(made, 0, bytes);
        s[1] = (uint64_t)(uintptr_t)made;
    }
    return (void *)(uintptr_t)s[1];
}

/* One value more for a state of a kind that is not simple. */
static int32_t update(uint32_t k, uint32_t group, value_t v)
{
    const state_spec_t *spec = q.state + k;
    uint64_t *s = state_of(group, k);
    if (spec->fn == F_DISTINCT)
        return member_add(group, k, v);
    s[0]++;
    switch (spec->fn) {
    case F_LEAST:
    case F_MOST: {
        value_t had = {s[1], kind_words(spec->kind) == 2 ? s[2] : 0};
        int order = value_order(spec->kind, v, had);
        if (s[0] == 1 || (spec->fn == F_LEAST ? order < 0 : order > 0)) {
            if (!own_text(spec->kind, &v))
                return full();
            s[1] = v.a;
            if (kind_words(spec->kind) == 2)
                s[2] = v.b;
        }
        break;
    }
    case F_SPREAD: { /* Welford: mean, and sum of squared distances from it */
        double mean = as_float(s[1]), d = as_float(v.a) - mean;
        mean += d / (double)s[0];
        s[2] = as_bits(as_float(s[2]) + d * (as_float(v.a) - mean));
        s[1] = as_bits(mean);
        break;
    }
    case F_APPROX: {
        uint8_t *parts = sketch_of(s, PARTS);
        if (!parts)
            return full();
        parts_add(parts, hash_value(spec->kind, v));
        break;
    }
    case F_QUANTILE: {
        sketch_t *sketch = sketch_of(s, sizeof *sketch);
        return sketch ? sketch_add(sketch, 0, ranked(spec->kind, v.a)) : full();
    }
    default:
        if (spec->kind == K_FLOAT)
            s[1] = as_bits(as_float(s[1]) + as_float(v.a));
        else if (add_wide(s + 1, v.a, spec->kind == K_DECIMAL ? v.b : spec->kind == K_INT && (int64_t)v.a < 0 ? ~(uint64_t)0 : 0))
            q.overflow = 1;
    }
    return WHERRY_OK;
}

/* Sums of a whole vector: what most queries without groups are made of. */
static void sum_all(const state_spec_t *spec, const reg_t *r, uint64_t *s, uint32_t n)
{
    s[0] += n;
    if (spec->kind == K_FLOAT) {
        double part[4] = {0, 0, 0, 0};
        const double *v = r->v;
        uint32_t i = 0;
        for (; i + 4 <= n; i += 4)
            for (uint32_t j = 0; j < 4; j++)
                part[j] += v[i + j];
        for (; i < n; i++)
            part[0] += v[i];
        s[1] = as_bits(as_float(s[1]) + (part[0] + part[1]) + (part[2] + part[3]));
        return;
    }
    const uint64_t *v = r->v;
    uint64_t low = 0, high = 0, below = 0; /* 2,048 halves of 32 bits do not overflow 64 */
    for (uint32_t i = 0; i < n; i++) {
        low += v[i] & UINT32_MAX;
        high += v[i] >> 32;
        below += v[i] >> 63;
    }
    (void)add_wide(s + 1, low, 0);
    (void)add_wide(s + 1, high << 32, high >> 32);
    if (spec->kind == K_INT)
        s[2] -= below;
}

/* Counts and sums of a vector whose rows are in many groups. */
static void update_simple(uint32_t k, const reg_t *r, uint32_t n)
{
    const state_spec_t *spec = q.state + k;
    uint32_t off = q.state_at[k];
    const uint8_t *ok = r && r->nulls ? r->ok : NULL;
#define STATES(body)                                                 \
    for (uint32_t i = 0; i < n; i++) {                               \
        uint64_t *s = (uint64_t *)(uintptr_t)(q.at[i] + off);        \
        if (ok && !ok[i])                                            \
            continue;                                                \
        s[0]++;                                                      \
        body;                                                        \
    }
    if (spec->fn == F_COUNT) {
        STATES(;)
        return;
    }
    const uint64_t *v = r->v;
    switch (spec->kind) {
    case K_FLOAT: STATES(s[1] = as_bits(as_float(s[1]) + as_float(v[i]))) break;
    case K_INT: STATES((void)add_wide(s + 1, v[i], (uint64_t)((int64_t)v[i] >> 63))) break;
    default: STATES((void)add_wide(s + 1, v[i], 0))
    }
}

static int32_t update_states(uint32_t n)
{
    uint32_t only = (uint32_t)(uintptr_t)(q.keep->first + 1);
    for (uint32_t k = 0; k < q.p->states; k++) {
        const state_spec_t *spec = q.state + k;
        const reg_t *r = spec->reg == NONE ? NULL : q.reg + spec->reg;
        int simple = spec->fn == F_COUNT || (spec->fn == F_SUM && spec->kind != K_DECIMAL);
        if (simple && q.p->keys) {
            update_simple(k, r, n);
            continue;
        }
        if (spec->fn == F_COUNT) {
            state_of(only, k)[0] += n - (r ? r->nulls : 0);
            continue;
        }
        if (simple && !r->nulls) {
            sum_all(spec, r, state_of(only, k), n);
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            if (!r->nulls || r->ok[i])
                WHERRY_TRY(update(k, q.p->keys ? q.at[i] : only, value_of(spec->kind, r, i)));
    }
    if (q.overflow)
        return refuse("a sum of decimals does not fit into 128 bits: use sum(f64(…))");
    return WHERRY_OK;
}

#endif
