/* groups.h: groups and their states in scratch.
 *
 * A group is u64 words: its hash, a bit for each key that is missing, the keys
 * (two words for text and decimals), and the states.  Each state begins with how many
 * values went into it; F_APPROX and F_QUANTILE have where their sketch lies. */
#ifndef GROUPS_H
#define GROUPS_H

#include "sketch.h"
#include "sums.h"

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

/* A tag says where its slot is, so a table that grows reads its slots only, one behind the other. */
WHERRY_INLINE uint32_t tag_of(uint64_t hash) { return (uint32_t)(hash >> 32); }
WHERRY_INLINE uint32_t slot_of(const hash_t *h, uint32_t tag) { return tag & (h->slots - 1); }

/* Makes room for n more. A table that every other row so far has put something into will grow on, and does so in one step. */
static int32_t hash_grow(hash_t *h, uint32_t n)
{
    uint32_t slots = h->slots ? h->slots : HASH_FIRST;
    while (h->used + n > slots / 2)
        slots *= 2;
    if (slots == h->slots)
        return WHERRY_OK;
    if ((uint64_t)h->used * (q.split ? q.split : 1) > q.keep->rows_read / 2)
        slots *= 2;
    slot_t *old = h->slot, *slot = room((uint64_t)(slots + 1) * sizeof *slot); /* nothing is in the last, which is read with the one before */
    uint32_t had = h->slots;
    if (!slot)
        return full();
    h->slot = slot;
    h->slots = slots;
    for (uint32_t i = 0; i < had; i++) {
        if (!old[i].at)
            continue;
        uint32_t s = slot_of(h, old[i].tag);
        while (slot[s].at)
            s = (s + 1) & (slots - 1);
        slot[s] = old[i];
    }
    return WHERRY_OK;
}

/* ---- Finding a vector's groups. ---- */

/* How many groups the last block has room for, at least one; 0 if there is no memory left. */
static uint32_t block_room(void)
{
    keep_t *k = q.keep;
    block_t *b = k->last;
    if (!b || b->used == b->room) {
        uint32_t most = BLOCK_BYTES / q.stride, want = k->total < 64 ? 16 : most ? most : 1;
        b = room(sizeof *b + 64 + (uint64_t)want * q.stride);
        if (!b)
            return 0;
        b = (block_t *)(((uintptr_t)b + 63) & ~(uintptr_t)63);
        b->next = NULL;
        b->used = 0;
        b->room = want;
        if (k->last)
            k->last->next = b;
        else
            k->first = b;
        k->last = b;
    }
    return b->room - b->used;
}

/* The next n of them, which are zero. */
static void *block_take(uint32_t n)
{
    block_t *b = q.keep->last;
    void *at = (uint8_t *)(b + 1) + (uint64_t)b->used * q.stride;
    b->used += n;
    q.keep->total += n;
    return at;
}

/* Room for one more; NULL if there is none left. */
static void *block_add(void) { return block_room() ? block_take(1) : NULL; }

/* Hashes of text from a dictionary: each word's is computed once. */
static int hash_words(uint32_t k, const reg_t *r, uint32_t n)
{
    word_cache_t *c = q.cache + k;
    if (!r->words)
        return 0;
    if (c->dictionary != r->dictionary) {
        uint64_t words = r->dictionary->words + 1; /* a missing value has number 0, even if there are no words */
        if (words > c->room) {
            uint64_t *more = room(words * sizeof *more);
            if (!more)
                return 0;
            c->hash = more;
            c->room = words;
        }
        memset(c->hash, 0, words * sizeof *c->hash);
        c->dictionary = r->dictionary;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *h = c->hash + r->words[i];
        if (!*h) {
            text_t t = ((const text_t *)r->v)[i];
            *h = hash_text(t.p, t.n);
        }
        q.plain[k][i] = *h;
    }
    return 1;
}

/* A key's values as 64 bits: the value itself, or a hash of what is longer. */
static const uint64_t *key_words(uint32_t k, uint32_t n)
{
    reg_t *r = q.reg + q.key[k].reg;
    uint32_t kind = q.key[k].kind;
    uint64_t *to = q.plain[k];
    dense(r, n);
    const uint64_t *v = r->v;
    if ((kind == K_INT || kind == K_UINT) && !r->nulls)
        return v;
    switch (kind) {
    case K_INT:
    case K_UINT: memcpy(to, v, n * sizeof *to); break;
    case K_FLOAT:
        for (uint32_t i = 0; i < n; i++)
            to[i] = one_zero(v[i]);
        break;
    case K_BOOL:
        for (uint32_t i = 0; i < n; i++)
            to[i] = ((const uint8_t *)v)[i];
        break;
    case K_TEXT:
        if (hash_words(k, r, n))
            break; /* else as any other */
    default:
        for (uint32_t i = 0; i < n; i++)
            to[i] = hash_value(kind, value_of(kind, r, i));
    }
    if (r->nulls)
        for (uint32_t i = 0; i < n; i++) {
            to[i] &= 0 - (uint64_t)r->ok[i];
            q.missing[i] |= (uint64_t)!r->ok[i] << k;
        }
    return to;
}

/* A group's hash, from that of its keys before number k, and what stands for that key. */
WHERRY_INLINE uint64_t hash_join(uint32_t k, uint64_t hash, uint64_t word) { return wherry_mix(k ? hash * 31 ^ word : word); }
WHERRY_INLINE uint64_t hash_missing(uint64_t hash, uint64_t missing) { return hash ^ missing * 0x9e3779b97f4a7c15u; }

static void hash_keys(uint32_t n)
{
    q.misses = 0;
    for (uint32_t k = 0; k < q.p->keys; k++)
        q.misses |= q.reg[q.key[k].reg].nulls;
    if (q.misses)
        memset(q.missing, 0, n * sizeof *q.missing);
    for (uint32_t k = 0; k < q.p->keys; k++) {
        const uint64_t *v = q.word[k] = key_words(k, n);
        if (k == 0)
            EACH(i, n) q.hash[i] = hash_join(0, 0, v[i]);
        else
            EACH(i, n) q.hash[i] = hash_join(1, q.hash[i], v[i]);
    }
    if (q.misses)
        for (uint32_t i = 0; i < n; i++)
            q.hash[i] = hash_missing(q.hash[i], q.missing[i]);
}

/* How many workers each element has. */
WHERRY_INLINE uint32_t workers_of(void)
{
    uint32_t n = q.p->workers;
    return n > 1 && q.team.elements % n == 0 ? n : 1;
}

/* Which of an element's workers a group belongs to. Neither its slot nor its element says anything of that. */
WHERRY_INLINE uint32_t worker_of(uint64_t hash, uint32_t workers) { return (uint32_t)((hash & UINT32_MAX) * workers >> 32); }

/* Lists the rows of a vector whose groups are this worker's. */
static __attribute__((noinline)) uint32_t list_own(uint32_t n)
{
    const uint32_t workers = q.split, self = q.team.self % workers;
    uint32_t m = 0;
    EACH(i, n) {
        q.own[m] = (uint16_t)i;
        m += worker_of(q.hash[i], workers) == self;
    }
    return m;
}

#define OWN(type, to, from, m)                                       \
    do {                                                             \
        type *dst = (type *)(to);                                    \
        const type *src = (const type *)(from);                      \
        EACH(j, m) dst[j] = src[q.own[j]];                           \
    } while (0)

static __attribute__((noinline)) void own_words(uint64_t *to, const uint64_t *from, uint32_t m) { OWN(uint64_t, to, from, m); }

/* Keeps a register's values of own rows; one whose values are still in their column needs no more than a list of those rows. */
static void own_values(reg_t *r, uint32_t kind, uint32_t m)
{
    if (r->constant)
        return;
    if (r->nulls) {
        OWN(uint8_t, r->ok, r->ok, m);
        r->nulls = m - ones(r->ok, NULL, m);
    }
    if (r->raw && !r->ready) {
        r->sel = q.sel;
        return;
    }
    if (kind == K_BOOL)
        OWN(uint8_t, r->buf, r->v, m);
    else if (kind == K_TEXT)
        OWN(text_t, r->buf, r->v, m);
    else if (kind == K_DECIMAL)
        OWN(wide_t, r->buf, r->v, m);
    else
        own_words(r->buf, r->v, m);
    r->v = r->buf;
    r->raw = NULL;
}

/* Keeps of a vector, once its keys are hashed, the rows of this worker's groups, and returns their number. The others cost nothing from there on. */
static uint32_t own_rows(uint32_t n, const uint16_t *sel)
{
    uint8_t done[REGISTERS_MOST];
    uint32_t m = list_own(n);
    if (m == n)
        return n;
    if (sel)
        OWN(uint16_t, q.sel, sel, m);
    else
        memcpy(q.sel, q.own, m * sizeof *q.sel);
    own_words(q.hash, q.hash, m);
    if (q.misses)
        own_words(q.missing, q.missing, m);
    memset(done, 0, sizeof done);
    for (uint32_t k = 0; k < q.p->keys; k++) {
        own_words(q.plain[k], q.word[k], m);
        q.word[k] = q.plain[k];
        if (kind_words(q.key[k].kind) == 2 && !done[q.key[k].reg]++)
            own_values(q.reg + q.key[k].reg, q.key[k].kind, m);
    }
    for (uint32_t k = 0; k < q.p->states; k++)
        if (q.state[k].reg != NONE && !done[q.state[k].reg]++)
            own_values(q.reg + q.state[k].reg, q.state[k].kind, m);
    return m;
}

WHERRY_INLINE uint64_t missing_of(uint32_t i) { return q.misses ? q.missing[i] : 0; }

/* The value of key k in row i, as groups have it. */
WHERRY_INLINE value_t key_value(uint32_t k, uint32_t i)
{
    uint32_t kind = q.key[k].kind;
    if (missing_of(i) >> k & 1)
        return (value_t){0, 0};
    if (kind == K_TEXT || kind == K_DECIMAL)
        return value_of(kind, q.reg + q.key[k].reg, i);
    return (value_t){q.word[k][i], 0};
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
    if (g->hash != q.hash[i] || g->missing != missing_of(i))
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

/* Text that does not stay where it lies is copied before it is kept. */
static int own_text(uint32_t kind, value_t *v)
{
    if (kind != K_TEXT || !q.passing || !v->b)
        return 1;
    void *copy = room(v->b);
    if (!copy)
        return 0;
    memcpy(copy, (const void *)(uintptr_t)v->a, (size_t)v->b);
    v->a = (uint64_t)(uintptr_t)copy;
    return 1;
}

/* Copies the texts of a group's keys, or a row's, that would not stay. */
static int own_keys(uint32_t group)
{
    for (uint32_t k = 0; q.passing && k < q.p->keys; k++) {
        uint64_t *key = key_of(group, k);
        if (q.key[k].kind != K_TEXT || ((const group_t *)(uintptr_t)group)->missing >> k & 1)
            continue;
        value_t v = {key[0], key[1]};
        if (!own_text(K_TEXT, &v))
            return 0;
        key[0] = v.a;
    }
    return 1;
}

/* The group of row i, which is not where its hash says. */
static uint32_t find_group(uint32_t i)
{
    hash_t *h = &q.keep->groups;
    uint32_t tag = tag_of(q.hash[i]), s = slot_of(h, tag);
    for (; h->slot[s].at; s = (s + 1) & (h->slots - 1))
        if (h->slot[s].tag == tag && same_group(h->slot[s].at, i))
            return h->slot[s].at;
    group_t *g = block_add();
    if (!g)
        return 0;
    g->hash = q.hash[i];
    g->missing = missing_of(i);
    q.keep->missed |= g->missing != 0;
    uint32_t at = (uint32_t)(uintptr_t)g;
    for (uint32_t k = 0; k < q.p->keys; k++)
        set_key(at, k, key_value(k, i));
    if (!own_keys(at))
        return 0;
    h->slot[s] = (slot_t){tag, at};
    h->used++;
    return at;
}

/* Reads what the next loop will read, in so few instructions a row that the processor waits for many of them at once. */
static __attribute__((noinline)) uint32_t touch_slots(const slot_t *slot, uint32_t mask, uint32_t from, uint32_t to)
{
    uint32_t all = 0;
#pragma clang loop unroll_count(8)
    for (uint32_t i = from; i < to; i++)
        all |= slot[tag_of(q.hash[i]) & mask].at;
    return all;
}

static __attribute__((noinline)) uint32_t touch_groups(uint32_t from, uint32_t to)
{
    uint32_t all = 0;
#pragma clang loop unroll_count(8)
    for (uint32_t i = from; i < to; i++)
        all |= *(const uint32_t *)(uintptr_t)q.at[i];
    return all;
}

/* Where the hashes of a step's rows lead, or the places behind those: groups whose tags are theirs, or nobody. */
static __attribute__((noinline)) void probe(const slot_t *slot, uint32_t mask, uint32_t none, uint32_t from, uint32_t to)
{
#pragma clang loop unroll_count(8)
    for (uint32_t i = from; i < to; i++) {
        uint32_t tag = tag_of(q.hash[i]);
        u64_lanes two = *(const u64_lanes *)(slot + (tag & mask));
        uint64_t s = (uint32_t)two[0] == tag ? two[0] : two[1];
        uint32_t at = (uint32_t)s == tag && s >> 32 ? (uint32_t)(s >> 32) : none;
        q.at[i] = at;
        q.wrong[i] = at == none;
    }
}

static __attribute__((noinline)) void check_words(const uint64_t *word, uint32_t off, uint32_t from, uint32_t to)
{
#pragma clang loop unroll_count(8)
    for (uint32_t i = from; i < to; i++)
        q.wrong[i] |= *(const uint64_t *)(uintptr_t)(q.at[i] + off) ^ word[i];
}

#define STEP 256u /* rows at a time: their slots and groups, 64 bytes each, fit into a first cache */

/* Rows of a step, as numbers in the vector. */
typedef struct {
    uint32_t n;
    uint16_t row[STEP];
} rows_t;

static rows_t lost, fresh, again; /* whose group was not found; those that begin one; those that other rows may have begun one for */

static __attribute__((noinline)) void list_lost(uint32_t from, uint32_t to)
{
    uint32_t n = 0;
#pragma clang loop unroll_count(8)
    for (uint32_t i = from; i < to; i++) {
        lost.row[n] = (uint16_t)i;
        n += q.wrong[i] != 0;
    }
    lost.n = n;
}

/* Gives rows the groups from at on, as many as there are, if nothing has their tags; and returns how many rows those were. */
static __attribute__((noinline)) uint32_t claim(slot_t *slot, uint32_t mask, uint32_t from, uint32_t at, uint32_t stride, uint32_t groups)
{
    uint32_t n = 0, j = from;
    for (; j < lost.n && n < groups; j++) {
        uint32_t i = lost.row[j], tag = tag_of(q.hash[i]), s = tag & mask;
        while (slot[s].at && slot[s].tag != tag)
            s = (s + 1) & mask;
        if (slot[s].at) {
            again.row[again.n++] = (uint16_t)i;
            continue;
        }
        slot[s] = (slot_t){tag, at};
        q.at[i] = at;
        fresh.row[n++] = (uint16_t)i;
        at += stride;
    }
    fresh.n = n;
    return j - from;
}

/* Writes words of the fresh rows into their groups. */
static __attribute__((noinline)) void fill_words(uint32_t at, uint32_t stride, const uint64_t *word)
{
#pragma clang loop unroll_count(4)
    for (uint32_t j = 0; j < fresh.n; j++, at += stride)
        *(uint64_t *)(uintptr_t)at = word[fresh.row[j]];
}

/* Makes the groups of lost rows: a field of all of them at a time. What remains is looked for one by one. */
static int32_t make_groups(void)
{
    hash_t *h = &q.keep->groups;
    again.n = 0;
    for (uint32_t j = 0; j < lost.n;) {
        uint32_t groups = block_room();
        if (!groups)
            return full();
        block_t *b = q.keep->last;
        uint32_t at = (uint32_t)(uintptr_t)(b + 1) + b->used * q.stride;
        j += claim(h->slot, h->slots - 1, j, at, q.stride, groups);
        (void)block_take(fresh.n);
        h->used += fresh.n;
        fill_words(at + (uint32_t)offsetof(group_t, hash), q.stride, q.hash);
        if (q.misses) {
            fill_words(at + (uint32_t)offsetof(group_t, missing), q.stride, q.missing);
            q.keep->missed = 1;
        }
        for (uint32_t k = 0; k < q.p->keys; k++)
            if (kind_words(q.key[k].kind) == 1)
                fill_words(at + q.key_at[k], q.stride, q.word[k]);
            else
                for (uint32_t i = 0; i < fresh.n; i++)
                    set_key(at + i * q.stride, k, key_value(k, fresh.row[i]));
        for (uint32_t i = 0; q.passing && i < fresh.n; i++)
            if (!own_keys(at + i * q.stride))
                return full();
    }
    for (uint32_t j = 0; j < again.n; j++)
        if (!(q.at[again.row[j]] = find_group(again.row[j])))
            return full();
    return WHERRY_OK;
}

/* Each row's group, in q.at.  A key at a time, so that the processor waits for many slots, and many groups, at once. */
static int32_t find_groups(uint32_t n)
{
    WHERRY_TRY(hash_grow(&q.keep->groups, n));
    const hash_t *h = &q.keep->groups;
    const uint32_t none = (uint32_t)(uintptr_t)q.nobody;
    for (uint32_t from = 0; from < n; from += STEP) {
        uint32_t to = n - from < STEP ? n : from + STEP;
        q.touched |= touch_slots(h->slot, h->slots - 1, from, to);
        probe(h->slot, h->slots - 1, none, from, to);
        q.touched |= touch_groups(from, to);
        if (q.misses || q.keep->missed)
            for (uint32_t i = from; i < to; i++)
                q.wrong[i] |= ((const group_t *)(uintptr_t)q.at[i])->missing ^ missing_of(i);
        for (uint32_t k = 0; k < q.p->keys; k++) {
            uint32_t off = q.key_at[k], kind = q.key[k].kind;
            if (kind_words(kind) == 1)
                check_words(q.word[k], off, from, to);
            else
                for (uint32_t i = from; i < to; i++)
                    q.wrong[i] |= !same_key(kind, (const uint64_t *)(uintptr_t)(q.at[i] + off), key_value(k, i));
        }
        list_lost(from, to);
        if (lost.n)
            WHERRY_TRY(make_groups());
    }
    return WHERRY_OK;
}

/* The group of all rows. */
static int32_t only_group(void)
{
    if (q.keep->first)
        return WHERRY_OK;
    group_t *g = block_add();
    return g ? WHERRY_OK : full();
}

/* ---- States. ---- */

WHERRY_INLINE int add_wide(uint64_t *s, uint64_t low, uint64_t high)
{
    uint64_t carry = __builtin_add_overflow(s[0], low, &s[0]), before = s[1];
    s[1] += high + carry;
    return (int64_t)((before ^ s[1]) & (high ^ s[1])) < 0; /* it overflows as a number with a sign */
}

/* The group with the same keys here; its own if this is the first that is heard of it. */
static uint32_t group_here(const group_t *in)
{
    hash_t *h = &q.keep->groups;
    uint32_t from = (uint32_t)(uintptr_t)in;
    if (!q.p->keys)
        return (uint32_t)(uintptr_t)(q.keep->first + 1);
    if (hash_grow(h, 1) != WHERRY_OK)
        return 0;
    uint32_t tag = tag_of(in->hash), s = slot_of(h, tag);
    for (; h->slot[s].at; s = (s + 1) & (h->slots - 1)) {
        const group_t *g = (const group_t *)(uintptr_t)h->slot[s].at;
        if (h->slot[s].tag != tag || g->hash != in->hash || g->missing != in->missing)
            continue;
        uint32_t k = 0;
        for (; k < q.p->keys; k++) {
            const uint64_t *key = key_of(from, k);
            if (!same_key(q.key[k].kind, key_of(h->slot[s].at, k), (value_t){key[0], kind_words(q.key[k].kind) == 2 ? key[1] : 0}))
                break;
        }
        if (k == q.p->keys)
            return h->slot[s].at;
    }
    group_t *g = block_add();
    if (!g)
        return 0;
    *g = *in;
    uint32_t at = (uint32_t)(uintptr_t)g;
    for (uint32_t k = 0; k < q.p->keys; k++) {
        const uint64_t *key = key_of(from, k);
        set_key(at, k, (value_t){key[0], kind_words(q.key[k].kind) == 2 ? key[1] : 0});
    }
    if (!own_keys(at))
        return 0;
    q.keep->missed |= g->missing != 0;
    h->slot[s] = (slot_t){tag, at};
    h->used++;
    return at;
}

static int32_t member_add(uint32_t group, uint32_t state, value_t v)
{
    hash_t *h = &q.keep->values;
    uint32_t kind = q.state[state].kind;
    if (kind == K_FLOAT)
        v.a = one_zero(v.a);
    uint64_t hash = wherry_mix(hash_value(kind, v) ^ ((uint64_t)group << 8 | state) * 0x9e3779b97f4a7c15u);
    WHERRY_TRY(hash_grow(h, 1));
    uint32_t tag = tag_of(hash), s = slot_of(h, tag);
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

/* ---- Sums of a whole vector. ---- */

/* A column's own values are taken where they lie. What is computed may be anything beneath missing values. */
static void sum_all(const state_spec_t *spec, reg_t *r, uint64_t *s, uint32_t n)
{
    int there = r->raw && type_width(r->type) == 8;
    if (!there)
        dense(r, n);
    const uint16_t *sel = there ? r->sel : NULL;
    const uint64_t *v = there ? (const void *)r->raw : r->v;
    s[0] += n - r->nulls;
    if (r->nulls && !r->clean) {
        EACH(i, n)
            q.wrong[i] = v[i] & (0 - (uint64_t)r->ok[i]);
        v = q.wrong;
    }
    if (spec->kind == K_FLOAT) {
        s[1] = as_bits(as_float(s[1]) + sum_floats((const double *)v, sel, n));
        return;
    }
    if (r->small) {
        uint64_t sum = sum_small(v, sel, n);
        (void)add_wide(s + 1, sum, spec->kind == K_INT ? (uint64_t)((int64_t)sum >> 63) : 0);
        return;
    }
    halves_t sum;
    if (sel)
        sum_listed(&sum, v, sel, n);
    else
        sum_words(&sum, v, n);
    (void)add_wide(s + 1, sum.low, 0);
    (void)add_wide(s + 1, sum.high << 32, sum.high >> 32);
    if (spec->kind == K_INT)
        s[2] -= sum.below;
}

/* Numbers of a vector into states of many groups: what can be said in a few instructions a row. */
static void update_simple(uint32_t k, const reg_t *r, uint32_t n)
{
    const state_spec_t *spec = q.state + k;
    uint32_t off = q.state_at[k];
    const uint8_t *ok = r && r->nulls ? r->ok : NULL;
    const uint64_t *v = r ? r->v : NULL;
#define STATES(body)                                                 \
    EACH(i, n) {                                                     \
        uint64_t *s = (uint64_t *)(uintptr_t)(q.at[i] + off);        \
        if (ok && !ok[i])                                            \
            continue;                                                \
        body;                                                        \
        s[0]++;                                                      \
    }
#define BETTER(type, rel) STATES(if (!s[0] || (type)v[i] rel (type)s[1]) s[1] = v[i])
    switch (spec->fn << 3 | spec->kind) {
    case F_SUM << 3 | K_FLOAT: STATES(s[1] = as_bits(as_float(s[1]) + as_float(v[i]))) break;
    case F_SUM << 3 | K_INT: STATES((void)add_wide(s + 1, v[i], (uint64_t)((int64_t)v[i] >> 63))) break;
    case F_SUM << 3 | K_UINT: STATES((void)add_wide(s + 1, v[i], 0)) break;
    case F_LEAST << 3 | K_INT: BETTER(int64_t, <) break;
    case F_LEAST << 3 | K_UINT: BETTER(uint64_t, <) break;
    case F_MOST << 3 | K_INT: BETTER(int64_t, >) break;
    case F_MOST << 3 | K_UINT: BETTER(uint64_t, >) break;
    case F_LEAST << 3 | K_FLOAT: STATES(if (!s[0] || float_before(v[i], s[1])) s[1] = v[i]) break;
    case F_MOST << 3 | K_FLOAT: STATES(if (!s[0] || float_before(s[1], v[i])) s[1] = v[i]) break;
    default: STATES(;)
    }
}

/* Whether update_simple does it. */
WHERRY_INLINE int simple(const state_spec_t *s)
{
    return s->fn == F_COUNT || ((s->fn == F_SUM || s->fn == F_LEAST || s->fn == F_MOST) && s->kind <= K_FLOAT);
}

static int32_t update_states(uint32_t n)
{
    uint32_t only = (uint32_t)(uintptr_t)(q.keep->first + 1);
    for (uint32_t k = 0; k < q.p->states; k++) {
        const state_spec_t *spec = q.state + k;
        reg_t *r = spec->reg == NONE ? NULL : q.reg + spec->reg;
        if (q.codes.count && q.codes.state[k].summed)
            continue;
        if (!q.p->keys && spec->fn == F_COUNT) {
            state_of(only, k)[0] += n - (r ? r->nulls : 0);
            continue;
        }
        if (!q.p->keys && spec->fn == F_SUM && spec->kind <= K_FLOAT) {
            sum_all(spec, r, state_of(only, k), n);
            continue;
        }
        if (r)
            dense(r, n);
        if (simple(spec))
            update_simple(k, r, n);
        else
            for (uint32_t i = 0; i < n; i++)
                if (!r->nulls || r->ok[i])
                    WHERRY_TRY(update(k, q.at[i], value_of(spec->kind, r, i)));
    }
    if (q.overflow)
        return refuse("a sum of decimals does not fit into 128 bits: use sum(f64(…))");
    return WHERRY_OK;
}

#endif
