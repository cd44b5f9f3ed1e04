/* answer.h: what groups and rows come out as, the first of them by an order,
 * and their records for whoever asked.
 *
 * A record is the byte R_ROW, then for each column a byte that is 0 where the
 * value is missing, and the value: 8 bytes; 16 for decimals and for sums of
 * integers; a u32 length and bytes for text.  The answer ends with R_END and
 * what was read. */
#ifndef ANSWER_H
#define ANSWER_H

#include "codes.h"

enum { R_ROW = 1, R_END };

typedef struct {
    uint32_t there, kind;
    value_t v;
} cell_t;

/* A sum of numbers that count something, divided: towards the lesser one. */
static uint64_t middle(const uint64_t *s)
{
    wide_t w = {s[1], s[2]};
    int minus = (int64_t)w.high < 0;
    if (minus) {
        w.low = 0 - w.low;
        w.high = ~w.high + (w.low == 0);
    }
    uint64_t rest = 0, out = 0;
    for (int i = 127; i >= 0; i--) {
        uint64_t bit = i >= 64 ? w.high >> (i - 64) & 1 : w.low >> i & 1;
        rest = rest << 1 | bit;
        out <<= 1;
        if (rest >= s[0]) {
            rest -= s[0];
            out |= 1;
        }
    }
    return minus ? 0 - (out + (rest != 0)) : out;
}

/* The square root by Newton's method: not every target has one without a library. */
static double root(double x)
{
    if (!(x > 0) || x > 0x1.fffffffffffffp1023)
        return x;
    double r = as_float((as_bits(x) >> 1) + ((uint64_t)1023 << 51)); /* half the exponent */
    for (int i = 0; i < 6; i++)
        r = (r + x / r) / 2;
    return r;
}

static cell_t output_cell(uint32_t group, const output_t *o)
{
    const uint64_t *s = state_of(group, o->state);
    cell_t c = {1, K_INT, {s[0], 0}};
    if (o->read == READ_COUNT)
        return c;
    if (o->read == READ_APPROX) {
        c.v.a = s[0] ? parts_count((const uint8_t *)(uintptr_t)s[1]) : 0;
        return c;
    }
    c.there = s[0] > (o->read == READ_DEVIATION);
    if (!c.there)
        return c;
    c.kind = o->kind;
    double n = (double)s[0];
    wide_t sum = {s[1], s[2]};
    switch (o->read) {
    case READ_SUM:
        if (o->kind != K_FLOAT) {
            c.kind = K_DECIMAL;
            c.v.b = s[2];
        }
        c.v.a = s[1];
        break;
    case READ_VALUE:
        c.v.a = s[1];
        c.v.b = kind_words(o->kind) == 2 ? s[2] : 0;
        break;
    case READ_MIDDLE:
        c.v.a = middle(s);
        break;
    case READ_QUANTILE:
        c.v.a = unranked(o->kind, sketch_quantile((sketch_t *)(uintptr_t)s[1], o->part));
        break;
    case READ_DEVIATION:
        c.kind = K_FLOAT;
        c.v.a = as_bits(root(as_float(s[2]) / (n - 1)));
        break;
    default: /* a mean */
        c.kind = K_FLOAT;
        if (o->kind == K_FLOAT)
            c.v.a = as_bits(as_float(s[1]) / n);
        else if (o->kind == K_UINT)
            c.v.a = as_bits(((double)sum.high * 0x1p64 + (double)sum.low) / n);
        else
            c.v.a = as_bits(decimal_float(sum, o->scale) / n);
    }
    return c;
}

static cell_t cell(uint32_t group, uint32_t column)
{
    if (column >= q.p->keys)
        return output_cell(group, q.output + (column - q.p->keys));
    const uint64_t *key = key_of(group, column);
    uint32_t kind = q.key[column].kind, missing = ((const group_t *)(uintptr_t)group)->missing >> column & 1;
    return (cell_t){!missing, kind, {key[0], kind_words(kind) == 2 ? key[1] : 0}};
}

static int32_t put_record(uint32_t group)
{
    WHERRY_TRY(put_byte(R_ROW));
    for (uint32_t k = 0; k < q.p->keys + q.p->outputs; k++) {
        cell_t c = cell(group, k);
        WHERRY_TRY(put_byte((uint8_t)c.there));
        if (!c.there)
            continue;
        if (c.kind == K_TEXT) {
            uint32_t n = (uint32_t)c.v.b;
            WHERRY_TRY(put(&n, 4));
            WHERRY_TRY(put((const void *)(uintptr_t)c.v.a, n));
        } else
            WHERRY_TRY(put(&c.v, kind_words(c.kind) * 8));
    }
    return WHERRY_OK;
}

/* Whether x comes behind y; missing values come last. first is y's value by which they are ordered first. */
static int behind_first(uint32_t x, uint32_t y, cell_t first)
{
    for (uint32_t i = 0; i < q.p->orders; i++) {
        cell_t a = cell(x, q.order[i].column), b = i ? cell(y, q.order[i].column) : first;
        if (!a.there || !b.there) {
            if (a.there != b.there)
                return !a.there;
            continue;
        }
        int order = value_order(a.kind, a.v, b.v);
        if (order)
            return q.order[i].down ? order < 0 : order > 0;
    }
    return 0;
}

static int behind(uint32_t x, uint32_t y) { return behind_first(x, y, cell(y, q.order[0].column)); }

/* ---- The first by the order: a heap, the last of them at its top. ---- */

static cell_t heap_first; /* what the last of them is ordered by first, once there are as many as are asked for */

static int32_t heap_open(void)
{
    q.heap = room(q.p->limit * sizeof *q.heap);
    return q.heap ? WHERRY_OK : full();
}

static void heap_sink(uint32_t x)
{
    uint32_t i = 0, n = q.heap_used;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && behind(q.heap[child + 1], q.heap[child]))
            child++;
        if (!behind(q.heap[child], x))
            break;
        q.heap[i] = q.heap[child];
        i = child;
    }
    q.heap[i] = x;
}

/* Takes x in if it is one of the first; what is not any more, or 0. */
static uint32_t heap_offer(uint32_t x)
{
    if (q.heap_used == q.p->limit) {
        uint32_t top = q.heap[0];
        if (behind_first(x, top, heap_first) || !behind(top, x))
            return x;
        heap_sink(x);
        heap_first = cell(q.heap[0], q.order[0].column);
        return top;
    }
    uint32_t i = q.heap_used++;
    for (; i && behind(x, q.heap[(i - 1) / 2]); i = (i - 1) / 2)
        q.heap[i] = q.heap[(i - 1) / 2];
    q.heap[i] = x;
    heap_first = cell(q.heap[0], q.order[0].column);
    return 0;
}

/* Whether the first by an order are chosen here. */
WHERRY_INLINE int chooses(void) { return q.p->limit && q.p->orders; }

/* The element that a group belongs to; of several workers at each, the worker there. */
WHERRY_INLINE uint32_t home_of(uint32_t group)
{
    uint32_t workers = workers_of();
    uint64_t hash = ((const group_t *)(uintptr_t)group)->hash;
    return q.team.elements == 1 ? 0 : (uint32_t)(hash % (q.team.elements / workers)) * workers + worker_of(hash, workers);
}

/* ---- Groups. ---- */

/* What groups are ordered by first, where that is a number in their words: a group that comes behind all that are kept is passed over with one look. The
 * words are compared without sign once they are flipped; of a number of 64 bits both are the same one. */
typedef struct {
    uint32_t high, low; /* where they are in a group; 0: it is no such number */
    uint64_t flip_high, flip_low;
} rank_t;

static rank_t rank_of(const order_t *o)
{
    rank_t r = {0, 0, 0, 0};
    uint32_t kind = K_INT, wide = 0;
    if (o->column < q.p->keys) {
        if (q.keep->missed)
            return r;
        kind = q.key[o->column].kind;
        r.low = q.key_at[o->column];
    } else {
        const output_t *out = q.output + (o->column - q.p->keys);
        if (out->read != READ_COUNT && out->read != READ_VALUE && out->read != READ_SUM)
            return r;
        kind = out->read == READ_COUNT ? K_INT : out->kind;
        wide = out->read == READ_SUM;
        r.low = q.state_at[out->state] + (out->read == READ_COUNT ? 0 : 8);
    }
    if (kind != K_INT && kind != K_UINT && kind != K_DECIMAL)
        return (rank_t){0, 0, 0, 0};
    wide |= kind == K_DECIMAL;
    r.high = r.low + 8 * wide;
    r.flip_low = o->down ? ~(uint64_t)0 : 0;
    r.flip_high = r.flip_low ^ (kind == K_UINT && !wide ? 0 : (uint64_t)1 << 63);
    if (!wide)
        r.flip_low = r.flip_high;
    return r;
}

/* How many of n groups from at on are passed over. */
static __attribute__((noinline)) uint32_t pass_over(const rank_t *r, uint32_t at, uint32_t n, uint32_t stride, uint64_t high, uint64_t low)
{
    uint32_t i = 0;
    const uint64_t flip_high = r->flip_high, flip_low = r->flip_low;
    at += r->low;
    const uint32_t wide = r->high - r->low;
#pragma clang loop unroll_count(4)
    for (; i < n; i++, at += stride) {
        uint64_t h = *(const uint64_t *)(uintptr_t)(at + wide) ^ flip_high, l = *(const uint64_t *)(uintptr_t)at ^ flip_low;
        if (h < high || (h == high && l <= low))
            break;
    }
    return i;
}

/* Offers a block's groups to the heap. */
static void offer_block(const block_t *b, const rank_t *r)
{
    uint32_t group = (uint32_t)(uintptr_t)(b + 1), end = group + b->used * q.stride;
    for (; group < end; group += q.stride) {
        if (r->low && heap_first.there && q.heap_used == q.p->limit) {
            value_t last = heap_first.v;
            group += q.stride * pass_over(r, group, (end - group) / q.stride, q.stride, (r->high == r->low ? last.a : last.b) ^ r->flip_high, last.a ^ r->flip_low);
        }
        if (group < end && home_of(group) == q.team.self)
            (void)heap_offer(group);
    }
}

/* All groups that belong here: the first by the order, or as many as are asked for. */
static int32_t put_groups(void)
{
    uint64_t sent = 0;
    rank_t rank = {0, 0, 0, 0};
    if (chooses()) {
        WHERRY_TRY(heap_open());
        rank = rank_of(q.order);
    }
    for (const block_t *b = q.keep->first; b; b = b->next) {
        if (chooses()) {
            offer_block(b, &rank);
            continue;
        }
        for (uint32_t i = 0; i < b->used; i++) {
            uint32_t group = (uint32_t)(uintptr_t)(b + 1) + i * q.stride;
            if (home_of(group) == q.team.self && (!q.p->limit || sent++ < q.p->limit))
                WHERRY_TRY(put_record(group));
        }
    }
    for (uint32_t i = 0; i < q.heap_used; i++)
        WHERRY_TRY(put_record(q.heap[i]));
    return WHERRY_OK;
}

/* A vector's rows: sent as they are, or the first by the order kept. */
static int32_t put_rows(uint32_t n)
{
    for (uint32_t k = 0; k < q.p->keys; k++)
        dense(q.reg + q.key[k].reg, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = q.spare;
        if (!row && !(row = (uint32_t)(uintptr_t)block_add()))
            return full();
        q.spare = row;
        ((group_t *)(uintptr_t)row)->missing = 0;
        for (uint32_t k = 0; k < q.p->keys; k++) {
            const reg_t *r = q.reg + q.key[k].reg;
            if (r->nulls && !r->ok[i])
                ((group_t *)(uintptr_t)row)->missing |= (uint64_t)1 << k;
            else
                set_key(row, k, value_of(q.key[k].kind, r, i));
        }
        if (chooses()) {
            q.spare = heap_offer(row);
            if (q.passing && q.spare != row) {
                if (!own_keys(row))
                    return full();
                heap_first = cell(q.heap[0], q.order[0].column); /* of that text, perhaps */
            }
        } else
            WHERRY_TRY(put_record(row));
    }
    q.sent += n;
    return WHERRY_OK;
}

static int32_t put_end(void)
{
    const keep_t *k = q.keep;
    uint64_t end[] = {k->rows_read, k->chunks_read, k->chunks_skipped, k->bytes_read};
    WHERRY_TRY(put_byte(R_END));
    return put(end, sizeof end);
}

#endif
