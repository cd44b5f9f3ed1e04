/* vectors.h: what instructions do with vectors of rows.
 *
 * A register holds one value for each row; an instruction works on whole
 * registers, so what it is is asked once a vector.  A register without missing
 * values has nulls 0, and its ok bytes are not looked at. */
#ifndef VECTORS_H
#define VECTORS_H

#include "query.h"

/* ---- Loading columns. ---- */

WHERRY_INLINE int bit(const uint8_t *bits, uint32_t i) { return bits[i >> 3] >> (i & 7) & 1; }

/* The ok bytes of n rows from base on, or of those of sel. */
static void load_validity(reg_t *r, const uint8_t *bits, uint32_t base, const uint16_t *sel, uint32_t n)
{
    uint32_t there = 0;
    if (sel)
        for (uint32_t i = 0; i < n; i++)
            there += r->ok[i] = (uint8_t)bit(bits, base + sel[i]);
    else
        EACH(i, n)
            there += r->ok[i] = (uint8_t)bit(bits, base + i);
    r->nulls = n - there;
}

#define WIDEN(from, to)                                              \
    do {                                                             \
        const from *src = (const from *)at + base;                   \
        to *dst = (to *)r->buf;                                      \
        if (sel)                                                     \
            EACH(i, n) dst[i] = (to)src[sel[i]];                     \
        else                                                         \
            EACH(i, n) dst[i] = (to)src[i];                          \
    } while (0)

static void load_words(reg_t *r, const part_t *part, const column_entry_t *c, const uint8_t *at, uint32_t base, const uint16_t *sel, uint32_t n)
{
    const uint32_t *offset = (const uint32_t *)(part->file + c->word_offsets);
    const uint8_t *text = part->file + c->word_text;
    text_t *dst = r->buf;
    uint32_t *words = (uint32_t *)(dst + VECTOR);
    r->words = words;
    r->dictionary = c;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = base + (sel ? sel[i] : i);
        uint32_t word = c->index == 1 ? at[row] : ((const uint16_t *)at)[row];
        words[i] = word;
        dst[i].p = text + offset[word];
        dst[i].n = offset[word + 1] - offset[word];
    }
}

/* Bytes of a value, or of a number into a dictionary, or of a place in plain text. */
static uint32_t type_bytes(const column_entry_t *c)
{
    static const uint8_t bytes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 4};
    return c->index ? c->index : c->type < sizeof bytes ? bytes[c->type] : c->type - WHERRY_TYPE_BYTES;
}

static int32_t load_column(reg_t *r, const part_t *part, const chunk_head_t *chunk, uint32_t column, uint32_t kind, uint32_t base, const uint16_t *sel, uint32_t n)
{
    if (column >= part->head->columns)
        return refuse("the program names a column that the dataset does not have");
    const column_entry_t *c = part->column + column;
    const chunk_entry_t *e = chunk_column(chunk, column);
    const uint8_t *at = part->file + e->values;
    r->v = r->buf;
    r->nulls = 0;
    r->words = NULL;
    if (e->nulls)
        load_validity(r, part->file + e->validity, base, sel, n);
    uint32_t width = type_bytes(c);
    q.keep->bytes_read += (uint64_t)n * width;
    switch (c->type) {
    case WHERRY_TYPE_I8: WIDEN(int8_t, int64_t); break;
    case WHERRY_TYPE_I16: WIDEN(int16_t, int64_t); break;
    case WHERRY_TYPE_I32: WIDEN(int32_t, int64_t); break;
    case WHERRY_TYPE_U8: WIDEN(uint8_t, int64_t); break;
    case WHERRY_TYPE_U16: WIDEN(uint16_t, int64_t); break;
    case WHERRY_TYPE_U32: WIDEN(uint32_t, int64_t); break;
    case WHERRY_TYPE_F32: WIDEN(float, double); break;
    case WHERRY_TYPE_I64:
    case WHERRY_TYPE_U64:
    case WHERRY_TYPE_F64:
        if (sel)
            WIDEN(uint64_t, uint64_t);
        else
            r->v = (const uint64_t *)at + base;
        break;
    case WHERRY_TYPE_BOOL:
        for (uint32_t i = 0; i < n; i++)
            ((uint8_t *)r->buf)[i] = (uint8_t)bit(at, base + (sel ? sel[i] : i));
        break;
    case WHERRY_TYPE_STR:
        if (c->index) {
            load_words(r, part, c, at, base, sel, n);
            break;
        }
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t *offset = (const uint32_t *)at + base + (sel ? sel[i] : i);
            ((text_t *)r->buf)[i].p = part->file + e->text + offset[0];
            ((text_t *)r->buf)[i].n = offset[1] - offset[0];
            q.keep->bytes_read += offset[1] - offset[0];
        }
        break;
    default: { /* bytes of a fixed number: decimals as they are, else each value as text */
        if (c->type <= WHERRY_TYPE_BYTES)
            return refuse("the program reads a column of a type that queries do not know");
        if (kind == K_DECIMAL) {
            if (width != sizeof(wide_t))
                return refuse("the query is damaged");
            r->v = (const wide_t *)at + base;
            if (sel) {
                for (uint32_t i = 0; i < n; i++)
                    ((wide_t *)r->buf)[i] = ((const wide_t *)r->v)[sel[i]];
                r->v = r->buf;
            }
            break;
        }
        for (uint32_t i = 0; i < n; i++) {
            ((text_t *)r->buf)[i].p = at + (uint64_t)(base + (sel ? sel[i] : i)) * width;
            ((text_t *)r->buf)[i].n = width;
        }
    }
    }
    return WHERRY_OK;
}

/* ---- Instructions. ---- */

/* The result misses what one of the arguments misses. */
static void both(reg_t *to, const reg_t *a, const reg_t *b, uint32_t n)
{
    to->v = to->buf;
    to->nulls = 0;
    if (!a->nulls && !(b && b->nulls))
        return;
    uint32_t there = 0;
    for (uint32_t i = 0; i < n; i++)
        there += to->ok[i] = (uint8_t)((a->nulls ? a->ok[i] : 1) & (b && b->nulls ? b->ok[i] : 1));
    to->nulls = n - there;
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

static void arithmetic(const instr_t *in, reg_t *to, const reg_t *a, const reg_t *b, uint32_t n)
{
    int bad = 0;
    uint32_t missing = 0;
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

#define COMPARED(type, rel)                                          \
    do {                                                             \
        const type *x = a->v, *y = b->v;                             \
        EACH(i, n) d[i] = x[i] rel y[i];                             \
    } while (0)

#define COMPARISON(rel)                                              \
    switch (in->kind) {                                              \
    case K_INT: COMPARED(int64_t, rel); break;                       \
    case K_UINT: COMPARED(uint64_t, rel); break;                     \
    case K_FLOAT: COMPARED(double, rel); break;                      \
    case K_BOOL: COMPARED(uint8_t, rel); break;                      \
    default:                                                         \
        for (uint32_t i = 0; i < n; i++)                             \
            d[i] = value_order(in->kind, value_of(in->kind, a, i), value_of(in->kind, b, i)) rel 0; \
    }

/* kind is the arguments'. */
static void compare(const instr_t *in, reg_t *to, const reg_t *a, const reg_t *b, uint32_t n)
{
    uint8_t *d = to->buf;
    both(to, a, b, n);
    switch (in->op) {
    case OP_EQ2: COMPARISON(==); break;
    case OP_NE2: COMPARISON(!=); break;
    case OP_LT2: COMPARISON(<); break;
    case OP_LE2: COMPARISON(<=); break;
    case OP_GT2: COMPARISON(>); break;
    default: COMPARISON(>=); break;
    }
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

static void cast(const instr_t *in, reg_t *to, const reg_t *a, uint32_t n)
{
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

static int found(const text_t *s, const text_t *want)
{
    for (uint32_t i = 0; i + want->n <= s->n; i++)
        if (same_text(s->p + i, want->p, want->n))
            return 1;
    return 0;
}

static void look(const instr_t *in, reg_t *to, const reg_t *a, const reg_t *b, uint32_t n)
{
    uint8_t *d = to->buf;
    both(to, a, b, n);
    for (uint32_t i = 0; i < n; i++) {
        const text_t *s = (const text_t *)a->v + i, *want = (const text_t *)b->v + i;
        if (in->op == OP_CONTAINS)
            d[i] = (uint8_t)found(s, want);
        else
            d[i] = s->n >= want->n && same_text(in->op == OP_HASPREFIX ? s->p : s->p + s->n - want->n, want->p, want->n);
    }
}

static void single(const instr_t *in, reg_t *to, const reg_t *a, uint32_t n)
{
    if (in->op == OP_ISNULL) {
        to->v = to->buf;
        to->nulls = 0;
        for (uint32_t i = 0; i < n; i++)
            ((uint8_t *)to->buf)[i] = a->nulls ? !a->ok[i] : 0;
        return;
    }
    both(to, a, NULL, n);
    for (uint32_t i = 0; i < n; i++)
        if (in->op == OP_NOT)
            ((uint8_t *)to->buf)[i] = !((const uint8_t *)a->v)[i];
        else if (in->kind == K_FLOAT)
            ((double *)to->buf)[i] = -((const double *)a->v)[i];
        else {
            int64_t x = ((const int64_t *)a->v)[i];
            q.overflow |= (to->nulls ? to->ok[i] : 1) && x == INT64_MIN;
            ((int64_t *)to->buf)[i] = (int64_t)(0 - (uint64_t)x);
        }
}

static int32_t execute(const instr_t *in, uint32_t count, const part_t *part, const chunk_head_t *chunk, uint32_t base, const uint16_t *sel, uint32_t n);

/* The right side of && and || runs for the rows only that the left one leaves undecided: what it says of the others does not
 * matter, nor do its errors.  As in SQL false && missing is false, and true || missing is true. */
static int32_t connect(const instr_t *in, const part_t *part, const chunk_head_t *chunk, uint32_t base, const uint16_t *sel, uint32_t n)
{
    reg_t *to = q.reg + in->to;
    const reg_t *a = q.reg + in->a, *b = q.reg + in->b;
    uint8_t *d = to->buf, end = in->op == OP_OR; /* the value that decides */
    uint16_t *open = (uint16_t *)(d + VECTOR), *rows = open + VECTOR;
    uint32_t m = 0;
    const uint8_t *x = a->v;
    for (uint32_t i = 0; i < n; i++) {
        open[m] = (uint16_t)i;
        m += (x[i] != end) | (a->nulls ? !a->ok[i] : 0);
    }
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
            WHERRY_TRY(connect(in, part, chunk, base, sel, n));
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
