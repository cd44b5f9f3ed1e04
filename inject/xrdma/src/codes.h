/* codes.h: groups by keys of few different values.
 *
 * What a chunk's bounds and dictionaries say about its keys is known before its
 * rows are read.  Where all combinations of their values are few, each has a
 * number, its code: a row's group is found by that instead of by a hash, and
 * numbers are added up by code, in a table that lies in the cache, which goes
 * into the groups at the chunk's end. */
#ifndef CODES_H
#define CODES_H

#include "groups.h"

#define CODES_MOST 4096u
#define SUMS_BYTES (128u << 10) /* of the table of sums: half of a usual second cache */

/* A load instruction's column; NONE if the register is computed. */
static uint32_t column_of(uint32_t reg)
{
    for (uint32_t i = 0; i < q.p->rest; i++)
        if (q.rest[i].op == OP_LOAD && q.rest[i].to == reg)
            return q.rest[i].column;
    return NONE;
}

/* What the keys and states need to know once. */
static int32_t codes_prepare(void)
{
    codes_t *c = &q.codes;
    for (uint32_t k = 0; k < q.p->keys; k++)
        c->key[k].column = column_of(q.key[k].reg);
    c->words = 1;
    for (uint32_t k = 0; k < q.p->states; k++) {
        const state_spec_t *s = q.state + k;
        c->state[k].at = c->words;
        c->state[k].column = s->reg == NONE ? NONE : column_of(s->reg);
        if (s->reg != NONE && (s->fn == F_COUNT || (s->fn == F_SUM && s->kind <= K_FLOAT)))
            c->words += 2; /* a sum, and how many are missing */
    }
    c->form = room(q.stride);
    c->group = room(CODES_MOST * sizeof *c->group);
    c->sum = room(SUMS_BYTES);
    return c->form && c->group && c->sum ? WHERRY_OK : full();
}

/* How many values a key can have in a chunk, and the least; 0 if they are too many or not known. */
static uint32_t key_range(uint32_t k, const part_t *part, const chunk_head_t *chunk, int64_t *least)
{
    uint32_t column = q.codes.key[k].column;
    *least = 0;
    if (q.key[k].kind == K_BOOL)
        return 2;
    if (column >= part->head->columns)
        return 0;
    const column_entry_t *c = part->column + column;
    const chunk_entry_t *e = chunk_column(chunk, column);
    if (c->type == WHERRY_TYPE_STR)
        return c->index && c->words < CODES_MOST ? (uint32_t)c->words : 0;
    if (c->type > WHERRY_TYPE_U64 || !(e->flags & BOUNDS_GIVEN) || e->most - e->least >= CODES_MOST)
        return 0;
    *least = (int64_t)e->least;
    return (uint32_t)(e->most - e->least) + 1;
}

/* Whether a chunk's numbers can be added up in 64 bits. */
static int sums_fit(uint32_t k, const part_t *part, const chunk_head_t *chunk)
{
    const state_spec_t *s = q.state + k;
    uint32_t column = q.codes.state[k].column;
    if (s->fn == F_COUNT || s->kind == K_FLOAT)
        return 1;
    return column < part->head->columns && chunk->rows <= 1u << 17 && small(s->kind, chunk_column(chunk, column));
}

/* Sees whether a chunk's groups have codes. */
static void codes_open(const part_t *part, const chunk_head_t *chunk)
{
    codes_t *c = &q.codes;
    uint64_t count = 1;
    c->count = 0;
    for (uint32_t k = 0; k < q.p->keys; k++) {
        uint32_t range = key_range(k, part, chunk, &c->key[k].least);
        c->key[k].range = range;
        c->key[k].values = range + 1; /* and the missing one */
        count *= range + 1;
        if (!range || count > CODES_MOST || count > chunk->rows || count * c->words * 8 > SUMS_BYTES)
            return;
    }
    c->count = (uint32_t)count;
    memset(c->group, 0, c->count * sizeof *c->group);
    memset(c->sum, 0, c->count * c->words * 8);
    for (uint32_t k = 0; k < q.p->states; k++) {
        const state_spec_t *s = q.state + k;
        c->state[k].summed = s->fn == F_COUNT || (s->fn == F_SUM && s->kind <= K_FLOAT && sums_fit(k, part, chunk));
    }
}

/* ---- Codes of a vector's rows. ---- */

#define DIGITS(type)                                                    \
    do {                                                                \
        const type *v = (const type *)r->raw;                           \
        type from = (type)least;                                        \
        if (r->sel)                                                     \
            EACH(i, n) to[i] = (uint16_t)(v[r->sel[i]] - from);         \
        else                                                            \
            for (uint32_t i = 0; i < n; i++)                            \
                to[i] = (uint16_t)(v[i] - from);                        \
    } while (0)

/* Each row's value of a key, counted from the least. */
static __attribute__((noinline)) void digits(uint16_t *restrict to, const reg_t *r, int64_t least, uint32_t n)
{
    if (!r->raw) {
        for (uint32_t i = 0; i < n; i++)
            to[i] = ((const uint8_t *)r->v)[i];
        return;
    }
    uint32_t width = r->type == WHERRY_TYPE_STR ? r->dictionary->index : type_width(r->type);
    switch (width) {
    case 1: DIGITS(uint8_t); break;
    case 2: DIGITS(uint16_t); break;
    case 4: DIGITS(uint32_t); break;
    default: DIGITS(uint64_t);
    }
    if (width == 1)
        EACH(i, n) to[i] &= 255;
}

static __attribute__((noinline)) void digits_join(uint16_t *restrict to, const uint16_t *restrict more, uint16_t values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 8)
        *(u16_lanes *)(to + i) = *(const u16_lanes *)(to + i) * values + *(const u16_lanes *)(more + i);
}

static void codes_find(uint32_t n)
{
    codes_t *c = &q.codes;
    for (uint32_t k = 0; k < q.p->keys; k++) {
        const reg_t *r = q.reg + q.key[k].reg;
        uint16_t *to = k ? c->more : c->code;
        digits(to, r, c->key[k].least, n);
        if (r->nulls)
            EACH(i, n) to[i] = r->ok[i] ? to[i] : (uint16_t)c->key[k].range;
        if (k)
            digits_join(c->code, to, (uint16_t)c->key[k].values, n);
    }
}

/* ---- Groups of codes. ---- */

/* A code's group, which is made where there is none yet; 0: no memory. */
static uint32_t code_group(uint32_t code)
{
    codes_t *c = &q.codes;
    if (c->group[code])
        return c->group[code];
    group_t *g = c->form;
    uint32_t form = (uint32_t)(uintptr_t)g, rest = code;
    memset(g, 0, q.stride);
    for (uint32_t k = q.p->keys; k-- > 0; rest /= c->key[k].values) {
        uint32_t digit = rest % c->key[k].values;
        const column_entry_t *d = q.reg[q.key[k].reg].dictionary;
        if (digit == c->key[k].range)
            g->missing |= (uint64_t)1 << k;
        else if (q.key[k].kind != K_TEXT)
            key_of(form, k)[0] = (uint64_t)c->key[k].least + digit;
        else {
            const uint32_t *offset = (const uint32_t *)(q.part->file + d->word_offsets) + digit;
            set_key(form, k, (value_t){(uint64_t)(uintptr_t)(q.part->file + d->word_text + offset[0]), offset[1] - offset[0]});
        }
    }
    for (uint32_t k = 0; k < q.p->keys; k++) {
        const uint64_t *key = key_of(form, k);
        uint64_t word = g->missing >> k & 1 ? 0 : q.key[k].kind == K_TEXT ? hash_text((const uint8_t *)(uintptr_t)key[0], key[1]) : key[0];
        g->hash = hash_join(k, g->hash, word);
    }
    g->hash = hash_missing(g->hash, g->missing);
    return c->group[code] = group_here(g);
}

/* ---- Sums by code. ---- */

WHERRY_INLINE uint64_t *sums_of(uint32_t code, uint32_t at) { return q.codes.sum + code * q.codes.words + at; }

static __attribute__((noinline)) void codes_count(const uint16_t *code, uint64_t *sum, uint32_t words, uint32_t n)
{
    EACH(i, n) sum[code[i] * words]++;
}

/* Counts rows and adds up numbers besides: what most queries ask for. */
static __attribute__((noinline)) void codes_add(const uint16_t *code, uint64_t *sum, uint32_t words, uint32_t at, const uint64_t *v, uint64_t one, uint32_t n)
{
#pragma clang loop unroll_count(4)
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *s = sum + code[i] * words;
        s[at] += v[i];
        s[0] += one;
    }
}

static __attribute__((noinline)) void codes_add_floats(const uint16_t *code, uint64_t *sum, uint32_t words, const double *v, uint32_t n)
{
#pragma clang loop unroll_count(4)
    for (uint32_t i = 0; i < n; i++) {
        double *s = (double *)(sum + code[i] * words);
        *s += v[i];
    }
}

static __attribute__((noinline)) void codes_missing(const uint16_t *code, uint64_t *sum, uint32_t words, const uint8_t *ok, uint32_t n)
{
    EACH(i, n) sum[code[i] * words] += 1 - ok[i];
}

/* The numbers of a register, zero where they are missing. */
static const uint64_t *zeroed(reg_t *r, uint32_t n)
{
    dense(r, n);
    const uint64_t *v = r->v;
    if (!r->nulls || r->clean)
        return v;
    EACH(i, n) q.wrong[i] = v[i] & (0 - (uint64_t)r->ok[i]);
    return q.wrong;
}

static int32_t codes_update(uint32_t n)
{
    codes_t *c = &q.codes;
    uint64_t one = 1; /* rows are counted with the first sum */
    int others = 0;
    codes_find(n);
    for (uint32_t k = 0; k < q.p->states; k++) {
        const state_spec_t *s = q.state + k;
        others |= !c->state[k].summed;
        if (!c->state[k].summed || s->reg == NONE)
            continue;
        reg_t *r = q.reg + s->reg;
        uint32_t at = c->state[k].at;
        if (s->fn == F_SUM && s->kind == K_FLOAT)
            codes_add_floats(c->code, c->sum + at, c->words, (const double *)zeroed(r, n), n);
        else if (s->fn == F_SUM) {
            codes_add(c->code, c->sum, c->words, at, zeroed(r, n), one, n);
            one = 0;
        }
        if (r->nulls)
            codes_missing(c->code, c->sum + at + 1, c->words, r->ok, n);
    }
    if (one)
        codes_count(c->code, c->sum, c->words, n);
    if (!others)
        return WHERRY_OK;
    for (uint32_t i = 0; i < n; i++)
        if (!(q.at[i] = code_group(c->code[i])))
            return full();
    return update_states(n);
}

/* Adds a chunk's sums to the groups. */
static int32_t codes_close(void)
{
    codes_t *c = &q.codes;
    for (uint32_t code = 0; code < c->count; code++) {
        uint64_t rows = sums_of(code, 0)[0];
        if (!rows)
            continue;
        uint32_t group = code_group(code);
        if (!group)
            return full();
        for (uint32_t k = 0; k < q.p->states; k++) {
            if (!c->state[k].summed)
                continue;
            const state_spec_t *spec = q.state + k;
            const uint64_t *sum = sums_of(code, c->state[k].at);
            uint64_t *s = state_of(group, k);
            s[0] += rows - (spec->reg == NONE ? 0 : sum[1]);
            if (spec->fn == F_SUM && spec->kind == K_FLOAT)
                s[1] = as_bits(as_float(s[1]) + as_float(sum[0]));
            else if (spec->fn == F_SUM)
                (void)add_wide(s + 1, sum[0], spec->kind == K_INT ? (uint64_t)((int64_t)sum[0] >> 63) : 0);
        }
    }
    c->count = 0;
    return WHERRY_OK;
}

#endif
