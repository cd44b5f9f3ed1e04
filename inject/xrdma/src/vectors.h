/* vectors.h: what instructions do with vectors of rows.
 *
 * A register holds one value for each row; an instruction works on whole
 * registers, so what it is is asked once a vector.  A register without missing
 * values has nulls 0, and its ok bytes are not looked at. */
#ifndef VECTORS_H
#define VECTORS_H

#include "lanes.h"

/* ---- Loading columns. ---- */

WHERRY_INLINE int bit(const uint8_t *bits, uint32_t i) { return bits[i >> 3] >> (i & 7) & 1; }

/* Eight bits as eight bytes, 0 or 1. */
WHERRY_INLINE uint64_t bits_spread(uint32_t byte)
{
    uint64_t one = byte * 0x0101010101010101u & 0x8040201008040201u;
    return (one + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

/* The bits of n rows from base on, or of those of sel, as bytes; how many are set. */
static __attribute__((noinline)) uint32_t spread(uint8_t *to, const uint8_t *bits, uint32_t base, const uint16_t *sel, uint32_t n)
{
    uint32_t set = 0;
    if (sel) {
        EACH(i, n)
            set += to[i] = (uint8_t)bit(bits, base + sel[i]);
        return set;
    }
    bits += base >> 3; /* a vector begins with a byte */
    for (uint32_t i = 0; i < n; i += 8) {
        uint32_t byte = bits[i >> 3];
        if (n - i < 8)
            byte &= (1u << (n - i)) - 1;
        uint64_t bytes = bits_spread(byte);
        memcpy(to + i, &bytes, 8);
        set += __builtin_popcount(byte);
    }
    return set;
}

#define WIDEN(from, to)                                              \
    do {                                                             \
        const from *src = (const from *)r->raw;                      \
        to *dst = (to *)r->buf;                                      \
        if (sel)                                                     \
            EACH(i, n) dst[i] = (to)src[sel[i]];                     \
        else                                                         \
            EACH(i, n) dst[i] = (to)src[i];                          \
    } while (0)

/* Text from a dictionary: numbers, and what they stand for. */
static __attribute__((noinline)) void load_words(reg_t *r, uint32_t n)
{
    const column_entry_t *c = r->dictionary;
    const uint32_t *offset = (const uint32_t *)(r->part->file + c->word_offsets);
    const uint8_t *text = r->part->file + c->word_text, *at = r->raw;
    text_t *dst = r->buf;
    uint32_t *words = (uint32_t *)(dst + VECTOR);
    r->words = words;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = r->sel ? r->sel[i] : i;
        uint32_t word = c->index == 1 ? at[row] : ((const uint16_t *)at)[row];
        words[i] = word;
        dst[i].p = text + offset[word];
        dst[i].n = offset[word + 1] - offset[word];
    }
}

/* Bytes of a value, or of a place in plain text. */
static uint32_t type_width(uint32_t type)
{
    static const uint8_t bytes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 4};
    return type < sizeof bytes ? bytes[type] : type - WHERRY_TYPE_BYTES;
}

WHERRY_INLINE uint32_t type_bytes(const column_entry_t *c) { return c->index ? c->index : type_width(c->type); }

/* Whether the sum of a chunk's integers, of at most 2^17 rows, fits into 64 bits, as its bounds say. */
static int small(uint32_t kind, const chunk_entry_t *e)
{
    const int64_t most = (int64_t)1 << 45;
    if (!(e->flags & BOUNDS_GIVEN) || kind > K_UINT)
        return 0;
    return kind == K_UINT ? e->most <= (uint64_t)most : (int64_t)e->least >= -most && (int64_t)e->most <= most;
}

static int32_t load_column(reg_t *r, const part_t *part, const chunk_head_t *chunk, uint32_t column, uint32_t kind, uint32_t base, const uint16_t *sel, uint32_t n)
{
    if (column >= part->head->columns)
        return refuse("the program names a column that the dataset does not have");
    const column_entry_t *c = part->column + column;
    const chunk_entry_t *e = chunk_column(chunk, column);
    const uint8_t *at = part->file + e->values;
    uint32_t width = type_bytes(c);
    r->v = r->buf;
    r->nulls = e->nulls ? n - spread(r->ok, part->file + e->validity, base, sel, n) : 0;
    r->clean = 1;
    r->small = small(kind, e) && chunk->rows <= 1u << 17;
    r->words = NULL;
    r->raw = NULL;
    r->ready = 0;
    r->sel = sel;
    q.keep->bytes_read += (uint64_t)n * width;
    if (c->type == WHERRY_TYPE_BOOL)
        (void)spread(r->buf, at, base, sel, n);
    else if (c->type < WHERRY_TYPE_STR || (c->type == WHERRY_TYPE_STR && c->index)) {
        r->raw = at + (uint64_t)base * width;
        r->type = c->type;
        r->part = part;
        r->dictionary = c;
    } else if (c->type == WHERRY_TYPE_STR) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t *offset = (const uint32_t *)at + base + (sel ? sel[i] : i);
            ((text_t *)r->buf)[i].p = part->file + e->text + offset[0];
            ((text_t *)r->buf)[i].n = offset[1] - offset[0];
            q.keep->bytes_read += offset[1] - offset[0];
        }
    } else if (c->type <= WHERRY_TYPE_BYTES)
        return refuse("the program reads a column of a type that queries do not know");
    else if (kind != K_DECIMAL) /* each value as text */
        for (uint32_t i = 0; i < n; i++) {
            ((text_t *)r->buf)[i].p = at + (uint64_t)(base + (sel ? sel[i] : i)) * width;
            ((text_t *)r->buf)[i].n = width;
        }
    else if (width != sizeof(wide_t))
        return refuse("the query is damaged");
    else if (sel)
        for (uint32_t i = 0; i < n; i++)
            ((wide_t *)r->buf)[i] = ((const wide_t *)at + base)[sel[i]];
    else
        r->v = (const wide_t *)at + base;
    return WHERRY_OK;
}

/* Brings a column's values into its register: numbers as 64 bits, text as places. */
static __attribute__((noinline)) void dense_numbers(reg_t *r, const uint16_t *sel, uint32_t n)
{
    switch (r->type) {
    case WHERRY_TYPE_I8: WIDEN(int8_t, int64_t); break;
    case WHERRY_TYPE_I16: WIDEN(int16_t, int64_t); break;
    case WHERRY_TYPE_I32: WIDEN(int32_t, int64_t); break;
    case WHERRY_TYPE_U8: WIDEN(uint8_t, int64_t); break;
    case WHERRY_TYPE_U16: WIDEN(uint16_t, int64_t); break;
    case WHERRY_TYPE_U32: WIDEN(uint32_t, int64_t); break;
    case WHERRY_TYPE_F32: WIDEN(float, double); break;
    default: WIDEN(uint64_t, uint64_t);
    }
}

static void dense(reg_t *r, uint32_t n)
{
    if (!r->raw || r->ready)
        return;
    if (r->type == WHERRY_TYPE_STR)
        load_words(r, n);
    else if (type_width(r->type) == 8 && !r->sel)
        r->v = r->raw;
    else
        dense_numbers(r, r->sel, n);
    r->ready = 1;
}

/* ---- Instructions. ---- */

/* How many of n bytes, each 0 or 1, are 1, and the same bytes of ok too if it is there: at most VECTOR, so that a byte holds each lane's. */
static __attribute__((noinline)) uint32_t ones(const uint8_t *v, const uint8_t *ok, uint32_t n)
{
    _Static_assert(VECTOR / 16 < 256, "a lane's count does not fit into a byte");
    lanes_t set = {0};
    uint32_t i = 0, all = 0;
    for (; i + 64 <= n; i += 64) {
        const uint8_t *p = reach(v + i, 64);
        lanes_t four[4] = {((const lanes_t *)p)[0], ((const lanes_t *)p)[1], ((const lanes_t *)p)[2], ((const lanes_t *)p)[3]};
        if (ok)
            for (uint32_t j = 0; j < 4; j++)
                four[j] &= ((const lanes_t *)(ok + i))[j];
        set += four[0] + four[1] + four[2] + four[3];
    }
    for (uint32_t j = 0; j < 16; j++)
        all += set[j];
    for (; i < n; i++)
        all += v[i] & (ok ? ok[i] : 1);
    return all;
}

/* The result misses what one of the arguments misses. */
static void both(reg_t *to, const reg_t *a, const reg_t *b, uint32_t n)
{
    to->v = to->buf;
    to->nulls = 0;
    to->clean = 0;
    if (b && b->nulls && a->nulls) {
        for (uint32_t i = 0; i < n; i += 16)
            *(lanes_t *)(to->ok + i) = *(const lanes_t *)(a->ok + i) & *(const lanes_t *)(b->ok + i);
        to->nulls = n - ones(to->ok, NULL, n);
    } else if (a->nulls || (b && b->nulls)) {
        const reg_t *some = a->nulls ? a : b;
        memcpy(to->ok, some->ok, n);
        to->nulls = some->nulls;
    }
}

/* The compiler's own would call 128-bit multiplication, which no library here has. */
WHERRY_INLINE int multiply_unsigned(uint64_t a, uint64_t b, uint64_t *product)
{
    uint64_t ah = a >> 32, al = (uint32_t)a, bh = b >> 32, bl = (uint32_t)b;
    uint64_t cross = ah * bl + al * bh, low = al * bl; /* one of the two is 0, or it overflows anyway */
    *product = a * b;
    return (ah && bh) || cross >> 32 || (cross << 32) + low < low;
}

WHERRY_INLINE int multiply_signed(int64_t a, int64_t b, int64_t *product)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b, p;
    int minus = (a < 0) != (b < 0), over = multiply_unsigned(x, y, &p);
    *product = (int64_t)(minus ? 0 - p : p);
    return over || p > (uint64_t)INT64_MAX + (uint64_t)minus;
}

/* Integers: an overflow counts where no value is missing. */
#define CHECKED(type, builtin)                                       \
    for (uint32_t i = 0; i < n; i++) {                               \
        type res;                                                    \
        bad |= builtin(((const type *)a->v)[i], ((const type *)b->v)[i], &res) & (to->nulls ? to->ok[i] : 1); \
        ((type *)to->buf)[i] = res;                                  \
    }

/* Division by zero is a missing value; the least integer by -1 overflows. */
#define DIVIDED(type, expr, over)                                    \
    for (uint32_t i = 0; i < n; i++) {                               \
        type x = ((const type *)a->v)[i], y = ((const type *)b->v)[i]; \
        int there = to->nulls ? to->ok[i] : 1;                       \
        to->ok[i] = (uint8_t)(there && y != 0);                      \
        bad |= there && (over);                                      \
        ((type *)to->buf)[i] = y == 0 || (over) ? 0 : (expr);        \
        missing += !to->ok[i];                                       \
    }

#define FLOATS(expr)                                                 \
    for (uint32_t i = 0; i < n; i++) {                               \
        double x = ((const double *)a->v)[i], y = ((const double *)b->v)[i]; \
        ((double *)to->buf)[i] = (expr);                             \
    }

static void arithmetic(const instr_t *in, reg_t *to, reg_t *a, reg_t *b, uint32_t n)
{
    int bad = 0;
    uint32_t missing = 0;
    dense(a, n);
    dense(b, n);
    both(to, a, b, n);
    switch (in->kind) {
    case K_INT:
        switch (in->op) {
        case OP_ADD: CHECKED(int64_t, __builtin_add_overflow); break;
        case OP_SUB: CHECKED(int64_t, __builtin_sub_overflow); break;
        case OP_MUL: CHECKED(int64_t, multiply_signed); break;
        case OP_DIV: DIVIDED(int64_t, x / y, x == INT64_MIN && y == -1); to->nulls = missing; break;
        default: DIVIDED(int64_t, x % y, x == INT64_MIN && y == -1); to->nulls = missing; break;
        }
        break;
    case K_UINT:
        switch (in->op) {
        case OP_ADD: CHECKED(uint64_t, __builtin_add_overflow); break;
        case OP_SUB: CHECKED(uint64_t, __builtin_sub_overflow); break;
        case OP_MUL: CHECKED(uint64_t, multiply_unsigned); break;
        case OP_DIV: DIVIDED(uint64_t, x / y, 0); to->nulls = missing; break;
        default: DIVIDED(uint64_t, x % y, 0); to->nulls = missing; break;
        }
        break;
    default:
        switch (in->op) {
        case OP_ADD: FLOATS(x + y); break;
        case OP_SUB: FLOATS(x - y); break;
        case OP_MUL: FLOATS(x * y); break;
        default: FLOATS(x / y); break;
        }
    }
    q.overflow |= bad;
}

/* Whether a number is one of a type, so that rows of that type can be compared with it as they are: of 64 bits those of its own kind. */
static int fits(uint32_t kind, uint32_t type, int64_t x)
{
    switch (type) {
    case WHERRY_TYPE_I8: return x == (int8_t)x;
    case WHERRY_TYPE_I16: return x == (int16_t)x;
    case WHERRY_TYPE_I32: return x == (int32_t)x;
    case WHERRY_TYPE_U8: return x == (uint8_t)x;
    case WHERRY_TYPE_U16: return x == (uint16_t)x;
    case WHERRY_TYPE_U32: return x == (uint32_t)x;
    case WHERRY_TYPE_I64: return kind == K_INT;
    case WHERRY_TYPE_U64: return kind == K_UINT;
    }
    return 0;
}

/* Compares a column with a value that all rows share, at the column's width; 0 if that cannot be. */
static int compare_raw(const instr_t *in, uint8_t *d, const reg_t *a, const reg_t *b, uint32_t n)
{
    static const uint32_t turned[] = {[OP_LT2] = OP_GT2, [OP_LE2] = OP_GE2, [OP_GT2] = OP_LT2, [OP_GE2] = OP_LE2, [OP_EQ2] = OP_EQ2, [OP_NE2] = OP_NE2};
    const reg_t *column = a->raw ? a : b, *fixed = a->raw ? b : a;
    if (!column->raw || column->sel || !fixed->constant || !fits(in->kind, column->type, *(const int64_t *)fixed->v))
        return 0;
    uint8_t same[16];
    uint32_t width = type_width(column->type);
    for (uint32_t i = 0; i < sizeof same; i++)
        same[i] = ((const uint8_t *)fixed->v)[i % width];
    compare_fixed(column == a ? in->op : turned[in->op], column->type, d, column->raw, same, n);
    return 1;
}

/* What a comparison says of an order: -1, 0 or 1. */
static int ordered(uint32_t op, int order)
{
    switch (op) {
    case OP_EQ2: return order == 0;
    case OP_NE2: return order != 0;
    case OP_LT2: return order < 0;
    case OP_LE2: return order <= 0;
    case OP_GT2: return order > 0;
    default: return order >= 0;
    }
}

static int found(const text_t *s, const text_t *want)
{
    for (uint32_t i = 0; i + want->n <= s->n; i++)
        if (same_text(s->p + i, want->p, want->n))
            return 1;
    return 0;
}

/* What an instruction says of a text. */
static int text_truth(uint32_t op, const text_t *s, const text_t *want)
{
    switch (op) {
    case OP_CONTAINS: return found(s, want);
    case OP_HASPREFIX: return s->n >= want->n && same_text(s->p, want->p, want->n);
    case OP_HASSUFFIX: return s->n >= want->n && same_text(s->p + s->n - want->n, want->p, want->n);
    }
    return ordered(op, text_order(s->p, s->n, want->p, want->n));
}

/* A condition on text from a dictionary is looked at once for each of its words; 0 if it is none. */
static int truth_by_words(const instr_t *in, reg_t *to, const reg_t *a, const reg_t *b, uint32_t n)
{
    const column_entry_t *c = a->dictionary;
    if (!a->raw || !c->index || !b->constant)
        return 0;
    if (to->dictionary != c) {
        uint64_t words = c->words + 1; /* a missing value has number 0, even if there are no words */
        if (words > to->truth_room && !(to->truth = room(words)))
            return 0;
        to->truth_room = words > to->truth_room ? words : to->truth_room;
        to->dictionary = c;
        const uint32_t *offset = (const uint32_t *)(a->part->file + c->word_offsets);
        for (uint32_t w = 0; w < c->words; w++) {
            text_t t = {a->part->file + c->word_text + offset[w], offset[w + 1] - offset[w]};
            to->truth[w] = (uint8_t)text_truth(in->op, &t, b->v);
        }
    }
    const uint16_t *sel = a->sel;
    uint8_t *d = to->buf;
    if (c->index == 1)
        EACH(i, n) d[i] = to->truth[a->raw[sel ? sel[i] : i]];
    else
        EACH(i, n) d[i] = to->truth[((const uint16_t *)a->raw)[sel ? sel[i] : i]];
    return 1;
}

/* kind is the arguments'. */
static void compare(const instr_t *in, reg_t *to, reg_t *a, reg_t *b, uint32_t n)
{
    static const uint8_t types[] = {0, WHERRY_TYPE_I64, WHERRY_TYPE_U64, WHERRY_TYPE_F64, WHERRY_TYPE_U8};
    uint8_t *d = to->buf;
    both(to, a, b, n);
    if (in->kind <= K_UINT ? compare_raw(in, d, a, b, n) : in->kind == K_TEXT && truth_by_words(in, to, a, b, n))
        return;
    dense(a, n);
    dense(b, n);
    if (in->kind <= K_BOOL) {
        compare_lanes(in->op, types[in->kind], d, a->v, b->v, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        d[i] = (uint8_t)ordered(in->op, value_order(in->kind, value_of(in->kind, a, i), value_of(in->kind, b, i)));
}

/* 128 bits with a sign, as a float. */
WHERRY_INLINE double wide_float(wide_t w)
{
    int minus = (int64_t)w.high < 0;
    if (minus) {
        w.low = 0 - w.low;
        w.high = ~w.high + (w.low == 0);
    }
    double f = (double)w.high * 0x1p64 + (double)w.low;
    return minus ? -f : f;
}

static double decimal_float(wide_t w, uint32_t scale)
{
    double ten = 1;
    for (; scale; scale--)
        ten *= 10;
    return wide_float(w) / ten;
}

static void cast(const instr_t *in, reg_t *to, reg_t *a, uint32_t n)
{
    dense(a, n);
    both(to, a, NULL, n);
    if (in->from == K_DECIMAL) {
        for (uint32_t i = 0; i < n; i++)
            ((double *)to->buf)[i] = decimal_float(((const wide_t *)a->v)[i], in->scale);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        int there = to->nulls ? to->ok[i] : 1;
        uint64_t x = in->from == K_BOOL ? ((const uint8_t *)a->v)[i] : ((const uint64_t *)a->v)[i];
        double f;
        memcpy(&f, &x, 8);
        switch (in->kind) {
        case K_FLOAT:
            ((double *)to->buf)[i] = in->from == K_INT ? (double)(int64_t)x : in->from == K_UINT ? (double)x : f;
            continue;
        case K_INT:
            if (in->from == K_FLOAT) {
                int fits = f >= -0x1p63 && f < 0x1p63;
                q.overflow |= there && !fits;
                x = fits ? (uint64_t)(int64_t)f : 0;
            } else if (in->from == K_UINT)
                q.overflow |= there && x > INT64_MAX;
            break;
        default:
            if (in->from == K_FLOAT) {
                int fits = f > -1 && f < 0x1p64;
                q.overflow |= there && !fits;
                x = fits ? (uint64_t)f : 0;
            } else if (in->from == K_INT)
                q.overflow |= there && (int64_t)x < 0;
        }
        ((uint64_t *)to->buf)[i] = x;
    }
}

static void look(const instr_t *in, reg_t *to, reg_t *a, reg_t *b, uint32_t n)
{
    uint8_t *d = to->buf;
    both(to, a, b, n);
    if (truth_by_words(in, to, a, b, n))
        return;
    dense(a, n);
    dense(b, n);
    for (uint32_t i = 0; i < n; i++)
        d[i] = (uint8_t)text_truth(in->op, (const text_t *)a->v + i, (const text_t *)b->v + i);
}

static void single(const instr_t *in, reg_t *to, reg_t *a, uint32_t n)
{
    if (in->op == OP_ISNULL) {
        to->v = to->buf;
        to->nulls = 0;
        if (!a->nulls)
            memset(to->buf, 0, n);
        for (uint32_t i = 0; a->nulls && i < n; i += 16)
            *(lanes_t *)((uint8_t *)to->buf + i) = *(const lanes_t *)(a->ok + i) ^ 1;
        return;
    }
    dense(a, n);
    both(to, a, NULL, n);
    if (in->op == OP_NOT) {
        for (uint32_t i = 0; i < n; i += 16)
            *(lanes_t *)((uint8_t *)to->buf + i) = *(const lanes_t *)((const uint8_t *)a->v + i) ^ 1;
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        if (in->kind == K_FLOAT)
            ((double *)to->buf)[i] = -((const double *)a->v)[i];
        else {
            int64_t x = ((const int64_t *)a->v)[i];
            q.overflow |= (to->nulls ? to->ok[i] : 1) && x == INT64_MIN;
            ((int64_t *)to->buf)[i] = (int64_t)(0 - (uint64_t)x);
        }
}

static int32_t execute(const instr_t *in, uint32_t count, const part_t *part, const chunk_head_t *chunk, uint32_t base, const uint16_t *sel, uint32_t n);

/* && and || of what both is known of all rows. As in SQL false && missing is false, and true || missing is true. */
static __attribute__((noinline)) void connect(const instr_t *in, reg_t *to, const reg_t *a, const reg_t *b, uint32_t n)
{
    const uint8_t *x = a->v, *y = b->v, *xs = a->nulls ? a->ok : NULL, *ys = b->nulls ? b->ok : NULL;
    uint8_t *d = to->buf, end = in->op == OP_OR; /* the value that decides */
    to->v = d;
    to->nulls = 0;
    if (!xs && !ys) {
        for (uint32_t i = 0; i < n; i += 16) {
            lanes_t p = *(const lanes_t *)(x + i), s = *(const lanes_t *)(y + i);
            *(lanes_t *)(d + i) = end ? p | s : p & s;
        }
        return;
    }
    for (uint32_t i = 0; i < n; i += 16) {
        lanes_t one = (lanes_t){0} + 1, p = *(const lanes_t *)(x + i), s = *(const lanes_t *)(y + i);
        lanes_t po = xs ? *(const lanes_t *)(xs + i) : one, so = ys ? *(const lanes_t *)(ys + i) : one;
        lanes_t decided = (po & (p ^ end ^ 1)) | (so & (s ^ end ^ 1));
        *(lanes_t *)(to->ok + i) = (po & so) | decided;
        *(lanes_t *)(d + i) = decided ^ end ^ 1;
    }
    to->nulls = n - ones(to->ok, NULL, n);
}

/* The right side of && and || runs for the rows only that the left one leaves undecided, where it can fail or takes long: what it says of the others does
 * not matter, nor do its errors. */
static int32_t connect_open(const instr_t *in, const part_t *part, const chunk_head_t *chunk, uint32_t base, const uint16_t *sel, uint32_t n)
{
    reg_t *to = q.reg + in->to;
    const reg_t *a = q.reg + in->a, *b = q.reg + in->b;
    uint8_t *d = to->buf, end = in->op == OP_OR; /* the value that decides */
    uint16_t *open = (uint16_t *)(d + VECTOR), *rows = open + VECTOR + 8;
    const uint8_t *x = a->v;
    for (uint32_t i = 0; i < n; i += 16) {
        lanes_t left = *(const lanes_t *)(x + i) ^ end;
        *(lanes_t *)(d + i) = a->nulls ? left | (*(const lanes_t *)(a->ok + i) ^ 1) : left;
    }
    uint32_t m = list_rows(open, d, NULL, n);
    if (m < n)
        for (uint32_t j = 0; j < m; j++)
            rows[j] = sel ? sel[open[j]] : open[j];
    to->v = d;
    to->nulls = 0;
    memset(d, end, n);
    if (m == 0)
        return WHERRY_OK;
    WHERRY_TRY(execute(in + 1, in->column, part, chunk, base, m < n ? rows : sel, m));
    if (a->nulls || b->nulls)
        memset(to->ok, 1, n);
    const uint8_t *y = b->v;
    for (uint32_t j = 0; j < m; j++) {
        uint32_t i = open[j];
        uint8_t xo = a->nulls ? a->ok[i] : 1, yo = b->nulls ? b->ok[j] : 1;
        if (yo && y[j] == end)
            continue;
        d[i] = !end;
        if (!(xo & yo)) {
            to->ok[i] = 0;
            to->nulls++;
        }
    }
    return WHERRY_OK;
}

static int32_t execute(const instr_t *in, uint32_t count, const part_t *part, const chunk_head_t *chunk, uint32_t base, const uint16_t *sel, uint32_t n)
{
    for (; count; count--, in++) {
        reg_t *to = q.reg + in->to, *a = q.reg + in->a, *b = q.reg + in->b;
        switch (in->op) {
        case OP_LOAD:
            WHERRY_TRY(load_column(to, part, chunk, in->column, in->kind, base, sel, n));
            break;
        case OP_ADD:
        case OP_SUB:
        case OP_MUL:
        case OP_DIV:
        case OP_MOD: arithmetic(in, to, a, b, n); break;
        case OP_AND:
        case OP_OR:
            if (!in->column) {
                connect(in, to, a, b, n);
                break;
            }
            WHERRY_TRY(connect_open(in, part, chunk, base, sel, n));
            count -= in->column;
            in += in->column;
            break;
        case OP_NEG:
        case OP_NOT:
        case OP_ISNULL: single(in, to, a, n); break;
        case OP_CAST: cast(in, to, a, n); break;
        case OP_HASPREFIX:
        case OP_HASSUFFIX:
        case OP_CONTAINS: look(in, to, a, b, n); break;
        default: compare(in, to, a, b, n);
        }
    }
    if (q.overflow)
        return refuse("an integer overflows: compute with f64(…), or leave such rows out");
    return WHERRY_OK;
}

#endif
