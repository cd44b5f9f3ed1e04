/* query: filters, projects, groups and aggregates columns by a program that
 * package query writes.
 *
 * Rows go through in vectors of VECTOR.  A register holds one value for each;
 * an instruction works on whole registers, so what it is is asked once a
 * vector.  First the condition: it gives a list of the rows that are left.
 * Columns that are loaded after it are gathered by that list, so everything
 * behind works on dense vectors.  A register without missing values has nulls 0,
 * and its ok bytes are not looked at.
 *
 * Groups are in a hash table in scratch.  When it is full they are sent as they
 * are and it starts anew: the same key may come more than once from one element,
 * and whoever asked adds the states up.
 *
 * The answer is a stream of records, cut into parts anywhere: a byte for the
 * kind, then for each key or output a byte that is 0 where the value is
 * missing, and the value, 8 bytes or a u32 length and text; a group's states
 * follow, 32 bytes each, with the text of least and greatest text behind. */
#include "columns.h"

#define VECTOR 2048u
#define REGISTERS_MOST 250u
#define KEYS_MOST 64u
#define STATES_MOST 64u
#define GROUP_BYTES_MOST (24u << 20)
#define PROGRAM_MAGIC 0x31505157u /* "WQP1" */
#define NONE 0xffffu

enum { K_INT = 1, K_UINT, K_FLOAT, K_BOOL, K_TEXT };
enum {
    OP_LOAD = 1, OP_LITERAL, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_NEG,
    OP_EQ2, OP_NE2, OP_LT2, OP_LE2, OP_GT2, OP_GE2, OP_AND, OP_OR, OP_NOT,
    OP_ISNULL, OP_CAST, OP_HASPREFIX, OP_HASSUFFIX, OP_CONTAINS
};
enum { F_COUNT = 1, F_SUM, F_LEAST, F_MOST, F_SPREAD };
enum { R_ROW = 1, R_GROUP, R_END };

typedef struct {
    uint32_t magic, registers, constants, filter, rest, keys, states, pushed;
    uint32_t condition; /* register, or NONE */
    uint32_t rows;      /* 1: rows go out, not groups */
    uint64_t limit;     /* of rows; 0: none */
    uint32_t text, more[3];
} program_t;

typedef struct {
    uint32_t reg, kind;
    uint64_t value;
    uint32_t text_at, text_size;
} constant_t;

typedef struct {
    uint8_t op, kind;
    uint16_t to, a, b;
    uint16_t from; /* OP_CAST: the argument's kind */
    uint16_t zero;
    uint32_t column; /* of OP_AND and OP_OR: how many of the instructions that follow are the right side */
} instr_t;

typedef struct {
    uint16_t reg, kind;
    uint32_t zero;
} output_t;

typedef struct {
    uint8_t fn, kind;
    uint16_t reg; /* NONE: rows are counted */
    uint32_t zero;
} state_spec_t;

/* A comparison of a column with a value that every row that is left fulfils. */
typedef struct {
    uint32_t column;
    uint16_t op, kind;
    uint64_t value;
} pushed_t;

typedef struct {
    const uint8_t *p;
    uint32_t n;
} text_t;

typedef struct {
    void *buf;       /* its own room */
    const void *v;   /* where the values are: there, or in a window */
    uint8_t *ok;     /* a byte each */
    uint32_t nulls;  /* 0: none is missing, and ok is not set */
} reg_t;

typedef struct {
    uint64_t n, a, b, c;
} state_t;

typedef struct {
    uint64_t a, b; /* the value; or where text is, and its length */
} key_t;

typedef struct {
    uint64_t hash, missing; /* a bit for each key */
    key_t key[];            /* keys, then states */
} group_t;

typedef struct {
    const program_t *p;
    const constant_t *constant;
    const instr_t *filter, *rest;
    const output_t *key;
    const state_spec_t *state;
    const pushed_t *pushed;
    const char *text;
    reg_t reg[REGISTERS_MOST];
    uint16_t sel[VECTOR];
    uint64_t hash[VECTOR];
    uint32_t group_of[VECTOR];
    uint32_t *slot;
    uint32_t slots, groups, most, stride;
    uint8_t *group;
    uint64_t sent, rows_read, chunks_read, chunks_skipped, bytes_read;
    uint32_t filled;
    int overflow;
    uint8_t out[WHERRY_PART_BYTES];
} query_t;

static query_t q;

/* ---- Output. ---- */

static int32_t put(const void *data, uint32_t n)
{
    const uint8_t *from = data;
    while (n) {
        uint32_t room = sizeof q.out - q.filled, step = n < room ? n : room;
        memcpy(q.out + q.filled, from, step);
        q.filled += step;
        from += step;
        n -= step;
        if (q.filled == sizeof q.out) {
            WHERRY_TRY(wherry_reply_part(q.out, q.filled));
            q.filled = 0;
        }
    }
    return WHERRY_OK;
}

static int32_t put_byte(uint8_t b) { return put(&b, 1); }

static int32_t put_text(const void *p, uint32_t n)
{
    WHERRY_TRY(put(&n, 4));
    return put(p, n);
}

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
        for (uint32_t i = 0; i < n; i++)
            there += r->ok[i] = (uint8_t)bit(bits, base + i);
    r->nulls = n - there;
}

#define WIDEN(from, to)                                              \
    do {                                                             \
        const from *src = (const from *)at + base;                   \
        to *dst = (to *)r->buf;                                      \
        if (sel)                                                     \
            for (uint32_t i = 0; i < n; i++)                         \
                dst[i] = (to)src[sel[i]];                            \
        else                                                         \
            for (uint32_t i = 0; i < n; i++)                         \
                dst[i] = (to)src[i];                                 \
    } while (0)

static void load_words(reg_t *r, const part_t *part, const column_entry_t *c, const uint8_t *at, uint32_t base, const uint16_t *sel, uint32_t n)
{
    const uint32_t *offset = (const uint32_t *)(part->file + c->word_offsets);
    const uint8_t *text = part->file + c->word_text;
    text_t *dst = r->buf;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = base + (sel ? sel[i] : i);
        uint32_t word = c->index == 1 ? at[row] : ((const uint16_t *)at)[row];
        dst[i].p = text + offset[word];
        dst[i].n = offset[word + 1] - offset[word];
    }
}

static int32_t load_column(reg_t *r, const part_t *part, const chunk_head_t *chunk, uint32_t column, uint32_t base, const uint16_t *sel, uint32_t n)
{
    if (column >= part->head->columns)
        return refuse("the program names a column that the dataset does not have");
    const column_entry_t *c = part->column + column;
    const chunk_entry_t *e = chunk_column(chunk, column);
    const uint8_t *at = part->file + e->values;
    r->v = r->buf;
    r->nulls = 0;
    if (e->nulls)
        load_validity(r, part->file + e->validity, base, sel, n);
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
        }
        break;
    default: { /* bytes of a fixed number: each value as text */
        uint32_t width = c->type - WHERRY_TYPE_BYTES;
        if (c->type <= WHERRY_TYPE_BYTES)
            return refuse("the program reads a column of a type that queries do not know");
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

static int text_order(const text_t *a, const text_t *b)
{
    int order = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

#define COMPARED(type, rel)                                          \
    for (uint32_t i = 0; i < n; i++)                                 \
        d[i] = ((const type *)a->v)[i] rel ((const type *)b->v)[i];

#define COMPARISON(rel)                                              \
    switch (in->kind) {                                              \
    case K_INT: COMPARED(int64_t, rel); break;                       \
    case K_UINT: COMPARED(uint64_t, rel); break;                     \
    case K_FLOAT: COMPARED(double, rel); break;                      \
    case K_BOOL: COMPARED(uint8_t, rel); break;                      \
    default:                                                         \
        for (uint32_t i = 0; i < n; i++)                             \
            d[i] = text_order((const text_t *)a->v + i, (const text_t *)b->v + i) rel 0; \
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

static void cast(const instr_t *in, reg_t *to, const reg_t *a, uint32_t n)
{
    both(to, a, NULL, n);
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
        if (memcmp(s->p + i, want->p, want->n) == 0)
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
            d[i] = s->n >= want->n && memcmp(in->op == OP_HASPREFIX ? s->p : s->p + s->n - want->n, want->p, want->n) == 0;
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
            WHERRY_TRY(load_column(to, part, chunk, in->column, base, sel, n));
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

/* ---- Groups. ---- */

WHERRY_INLINE group_t *group_at(uint32_t i) { return (group_t *)(q.group + (uint64_t)i * q.stride); }
WHERRY_INLINE state_t *states_of(group_t *g) { return (state_t *)(g->key + q.p->keys); }

/* The value of key k in row i; floats that are equal have equal bits. */
WHERRY_INLINE key_t key_value(uint32_t k, uint32_t i)
{
    const reg_t *r = q.reg + q.key[k].reg;
    key_t v = {0, 0};
    switch (q.key[k].kind) {
    case K_TEXT:
        v.a = (uint64_t)(uintptr_t)((const text_t *)r->v)[i].p;
        v.b = ((const text_t *)r->v)[i].n;
        break;
    case K_BOOL:
        v.a = ((const uint8_t *)r->v)[i];
        break;
    case K_FLOAT: {
        double f = ((const double *)r->v)[i];
        if (f == 0)
            f = 0;
        memcpy(&v.a, &f, 8);
        if (f != f)
            v.a = 0x7ff8000000000000u;
        break;
    }
    default:
        v.a = ((const uint64_t *)r->v)[i];
    }
    return v;
}

static void hash_keys(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        q.hash[i] = 0;
    for (uint32_t k = 0; k < q.p->keys; k++) {
        const reg_t *r = q.reg + q.key[k].reg;
        for (uint32_t i = 0; i < n; i++) {
            if (r->nulls && !r->ok[i]) {
                q.hash[i] = wherry_mix(q.hash[i] + k + 1);
                continue;
            }
            key_t v = key_value(k, i);
            uint64_t h = v.a;
            if (q.key[k].kind == K_TEXT) {
                const uint8_t *s = (const uint8_t *)(uintptr_t)v.a;
                uint64_t left = v.b;
                for (h = left; left >= 8; left -= 8, s += 8)
                    h = wherry_mix(h ^ load_u64(s));
                uint64_t rest = 0;
                for (; left; left--, s++)
                    rest = rest << 8 | *s;
                h ^= rest;
            }
            q.hash[i] = wherry_mix(q.hash[i] * 31 ^ h);
        }
    }
}

static int same_keys(const group_t *g, uint32_t i)
{
    for (uint32_t k = 0; k < q.p->keys; k++) {
        const reg_t *r = q.reg + q.key[k].reg;
        uint32_t missing = r->nulls && !r->ok[i];
        if (missing != (g->missing >> k & 1))
            return 0;
        if (missing)
            continue;
        key_t v = key_value(k, i);
        if (q.key[k].kind != K_TEXT) {
            if (v.a != g->key[k].a)
                return 0;
        } else if (v.b != g->key[k].b || (v.a != g->key[k].a && memcmp((const void *)(uintptr_t)v.a, (const void *)(uintptr_t)g->key[k].a, (size_t)v.b) != 0))
            return 0;
    }
    return 1;
}

static void find_groups(uint32_t n)
{
    uint32_t mask = q.slots - 1;
    hash_keys(n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = (uint32_t)(q.hash[i] >> 32) & mask;
        for (; q.slot[s]; s = (s + 1) & mask) {
            group_t *g = group_at(q.slot[s] - 1);
            if (g->hash == q.hash[i] && same_keys(g, i))
                break;
        }
        if (!q.slot[s]) {
            group_t *g = group_at(q.groups);
            memset(g, 0, q.stride);
            g->hash = q.hash[i];
            for (uint32_t k = 0; k < q.p->keys; k++) {
                const reg_t *r = q.reg + q.key[k].reg;
                if (r->nulls && !r->ok[i])
                    g->missing |= (uint64_t)1 << k;
                else
                    g->key[k] = key_value(k, i);
            }
            q.slot[s] = ++q.groups;
        }
        q.group_of[i] = q.slot[s] - 1;
    }
}

WHERRY_INLINE void add_wide(state_t *s, uint64_t low, uint64_t high)
{
    s->b += high + __builtin_add_overflow(s->a, low, &s->a);
}

WHERRY_INLINE double as_float(uint64_t x)
{
    double f;
    memcpy(&f, &x, 8);
    return f;
}

WHERRY_INLINE uint64_t as_bits(double f)
{
    uint64_t x;
    memcpy(&x, &f, 8);
    return x;
}

/* Whether x comes before y. NaN comes behind all. */
WHERRY_INLINE int before(uint32_t kind, uint64_t x, uint64_t xn, uint64_t y, uint64_t yn)
{
    switch (kind) {
    case K_INT: return (int64_t)x < (int64_t)y;
    case K_FLOAT: return as_float(x) < as_float(y) || (as_float(y) != as_float(y) && as_float(x) == as_float(x));
    case K_TEXT: {
        text_t a = {(const uint8_t *)(uintptr_t)x, (uint32_t)xn}, b = {(const uint8_t *)(uintptr_t)y, (uint32_t)yn};
        return text_order(&a, &b) < 0;
    }
    }
    return x < y;
}

WHERRY_INLINE void update(const state_spec_t *spec, const reg_t *r, state_t *s, uint32_t i)
{
    uint64_t x, more = 0;
    s->n++;
    if (spec->kind == K_TEXT) {
        x = (uint64_t)(uintptr_t)((const text_t *)r->v)[i].p;
        more = ((const text_t *)r->v)[i].n;
    } else if (spec->kind == K_BOOL)
        x = ((const uint8_t *)r->v)[i];
    else
        x = ((const uint64_t *)r->v)[i];
    switch (spec->fn) {
    case F_SUM:
        if (spec->kind == K_FLOAT)
            s->a = as_bits(as_float(s->a) + as_float(x));
        else
            add_wide(s, x, spec->kind == K_INT && (int64_t)x < 0 ? ~(uint64_t)0 : 0);
        break;
    case F_LEAST:
        if (s->n == 1 || before(spec->kind, x, more, s->a, s->b)) {
            s->a = x;
            s->b = more;
        }
        break;
    case F_MOST:
        if (s->n == 1 || before(spec->kind, s->a, s->b, x, more)) {
            s->a = x;
            s->b = more;
        }
        break;
    case F_SPREAD: { /* Welford: mean in a, sum of squared distances from it in b */
        double mean = as_float(s->a), d = as_float(x) - mean;
        mean += d / (double)s->n;
        s->b = as_bits(as_float(s->b) + d * (as_float(x) - mean));
        s->a = as_bits(mean);
    }
    }
}

/* Sums of a whole vector: what most queries without groups are made of. */
static void sum_all(const state_spec_t *spec, const reg_t *r, state_t *s, uint32_t n)
{
    s->n += n;
    if (spec->kind == K_FLOAT) {
        double part[4] = {0, 0, 0, 0};
        const double *v = r->v;
        uint32_t i = 0;
        for (; i + 4 <= n; i += 4)
            for (uint32_t j = 0; j < 4; j++)
                part[j] += v[i + j];
        for (; i < n; i++)
            part[0] += v[i];
        s->a = as_bits(as_float(s->a) + (part[0] + part[1]) + (part[2] + part[3]));
        return;
    }
    const uint64_t *v = r->v;
    uint64_t low = 0, high = 0, below = 0; /* 2,048 halves of 32 bits do not overflow 64 */
    for (uint32_t i = 0; i < n; i++) {
        low += v[i] & UINT32_MAX;
        high += v[i] >> 32;
        below += v[i] >> 63;
    }
    add_wide(s, low, 0);
    add_wide(s, high << 32, high >> 32);
    if (spec->kind == K_INT)
        s->b -= below;
}

static void update_states(uint32_t n)
{
    for (uint32_t k = 0; k < q.p->states; k++) {
        const state_spec_t *spec = q.state + k;
        const reg_t *r = spec->reg == NONE ? NULL : q.reg + spec->reg;
        if (!q.p->keys) {
            state_t *s = states_of(group_at(0)) + k;
            if (spec->fn == F_COUNT)
                s->n += n - (r ? r->nulls : 0);
            else if (spec->fn == F_SUM && !r->nulls)
                sum_all(spec, r, s, n);
            else
                for (uint32_t i = 0; i < n; i++)
                    if (!r->nulls || r->ok[i])
                        update(spec, r, s, i);
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            state_t *s = states_of(group_at(q.group_of[i])) + k;
            if (r && r->nulls && !r->ok[i])
                continue;
            if (spec->fn == F_COUNT)
                s->n++;
            else
                update(spec, r, s, i);
        }
    }
}

static int32_t put_value(uint32_t kind, uint64_t a, uint64_t b)
{
    if (kind == K_TEXT)
        return put_text((const void *)(uintptr_t)a, (uint32_t)b);
    return put(&a, 8);
}

static int32_t send_groups(void)
{
    for (uint32_t i = 0; i < q.groups; i++) {
        group_t *g = group_at(i);
        WHERRY_TRY(put_byte(R_GROUP));
        for (uint32_t k = 0; k < q.p->keys; k++) {
            uint8_t there = !(g->missing >> k & 1);
            WHERRY_TRY(put_byte(there));
            if (there)
                WHERRY_TRY(put_value(q.key[k].kind, g->key[k].a, g->key[k].b));
        }
        for (uint32_t k = 0; k < q.p->states; k++) {
            const state_t *s = states_of(g) + k;
            WHERRY_TRY(put(s, sizeof *s));
            if (q.state[k].kind == K_TEXT && (q.state[k].fn == F_LEAST || q.state[k].fn == F_MOST) && s->n)
                WHERRY_TRY(put_text((const void *)(uintptr_t)s->a, (uint32_t)s->b));
        }
    }
    q.groups = 0;
    if (q.slots)
        memset(q.slot, 0, q.slots * sizeof *q.slot);
    return WHERRY_OK;
}

static int32_t send_rows(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        WHERRY_TRY(put_byte(R_ROW));
        for (uint32_t k = 0; k < q.p->keys; k++) {
            const reg_t *r = q.reg + q.key[k].reg;
            uint8_t there = !r->nulls || r->ok[i];
            WHERRY_TRY(put_byte(there));
            if (!there)
                continue;
            key_t v = key_value(k, i);
            WHERRY_TRY(put_value(q.key[k].kind, v.a, v.b));
        }
    }
    q.sent += n;
    return WHERRY_OK;
}

/* ---- Chunks. ---- */

/* Whether no row of a chunk can be left, by its bounds. */
static int skipped(const part_t *part, const chunk_head_t *chunk)
{
    for (uint32_t i = 0; i < q.p->pushed; i++) {
        const pushed_t *t = q.pushed + i;
        if (t->column >= part->head->columns)
            continue;
        const chunk_entry_t *e = chunk_column(chunk, t->column);
        if (e->nulls == chunk->rows)
            return 1;
        if (!(e->flags & BOUNDS_GIVEN))
            continue;
        int low = before(t->kind, t->value, 0, e->least, 0), high = before(t->kind, e->most, 0, t->value, 0);
        int at_least = !before(t->kind, e->least, 0, t->value, 0), at_most = !before(t->kind, t->value, 0, e->most, 0);
        if ((t->op == OP_EQ2 && (low || high)) || (t->op == OP_LT2 && at_least) || (t->op == OP_LE2 && low) || (t->op == OP_GT2 && at_most) || (t->op == OP_GE2 && high))
            return 1;
    }
    return 0;
}

/* The rows of a vector for which the condition is true. */
static uint32_t selected(uint32_t n)
{
    const reg_t *r = q.reg + q.p->condition;
    const uint8_t *v = r->v;
    uint32_t k = 0;
    if (r->nulls)
        for (uint32_t i = 0; i < n; i++) {
            q.sel[k] = (uint16_t)i;
            k += v[i] & r->ok[i];
        }
    else
        for (uint32_t i = 0; i < n; i++) {
            q.sel[k] = (uint16_t)i;
            k += v[i];
        }
    return k;
}

static int32_t scan_chunk(const part_t *part, const chunk_head_t *chunk)
{
    for (uint32_t base = 0; base < chunk->rows; base += VECTOR) {
        uint32_t n = (uint32_t)chunk->rows - base < VECTOR ? (uint32_t)chunk->rows - base : VECTOR;
        const uint16_t *sel = NULL;
        q.rows_read += n;
        if (q.p->condition != NONE) {
            uint32_t all = n;
            WHERRY_TRY(execute(q.filter, q.p->filter, part, chunk, base, NULL, n));
            n = selected(n);
            if (n < all)
                sel = q.sel;
        }
        if (!n)
            continue;
        if (q.p->limit && n > q.p->limit - q.sent)
            n = (uint32_t)(q.p->limit - q.sent);
        WHERRY_TRY(execute(q.rest, q.p->rest, part, chunk, base, sel, n));
        if (q.p->rows) {
            WHERRY_TRY(send_rows(n));
            if (q.p->limit && q.sent >= q.p->limit)
                return WHERRY_OK;
            continue;
        }
        if (q.p->keys) {
            if (q.groups + n > q.most)
                WHERRY_TRY(send_groups());
            find_groups(n);
        }
        update_states(n);
    }
    return WHERRY_OK;
}

static int32_t scan(void)
{
    part_t part;
    for (uint32_t i = 0;; i++) {
        int32_t st = part_open(&part, i);
        if (st == WHERRY_ERR_NO_WINDOW && i > 0)
            return WHERRY_OK;
        if (st != WHERRY_OK)
            return st;
        for (uint32_t c = 0; c < part.head->chunks; c++) {
            const chunk_head_t *chunk = part_chunk(&part, c);
            if (skipped(&part, chunk)) {
                q.chunks_skipped++;
                continue;
            }
            q.chunks_read++;
            WHERRY_TRY(scan_chunk(&part, chunk));
            if (q.p->rows && q.p->limit && q.sent >= q.p->limit)
                return WHERRY_OK;
        }
    }
}

/* ---- The program. ---- */

static int32_t program_open(const uint8_t *payload, uint32_t size)
{
    const program_t *p = (const program_t *)payload;
    if (size < sizeof *p || p->magic != PROGRAM_MAGIC)
        return refuse("the payload is no query: use wherry query, or package query");
    if (p->registers > REGISTERS_MOST || p->keys > KEYS_MOST || p->states > STATES_MOST || p->constants > REGISTERS_MOST || p->filter > 10000 || p->rest > 10000 || p->pushed > 10000)
        return refuse("the query is too long: it has more parts than 250 registers, 64 keys and 64 aggregates hold");
    q.p = p;
    q.constant = (const constant_t *)(p + 1);
    q.filter = (const instr_t *)(q.constant + p->constants);
    q.rest = q.filter + p->filter;
    q.key = (const output_t *)(q.rest + p->rest);
    q.state = (const state_spec_t *)(q.key + p->keys);
    q.pushed = (const pushed_t *)(q.state + p->states);
    q.text = (const char *)(q.pushed + p->pushed);
    if ((const uint8_t *)q.text + p->text != payload + size)
        return refuse("the query is cut off");
    return WHERRY_OK;
}

/* Registers and the hash table, all in scratch. */
static int32_t room_open(void)
{
    uint64_t each = VECTOR * (sizeof(text_t) + 1), need = q.p->registers * each;
    uint32_t grouped = q.p->keys && !q.p->rows;
    q.stride = (uint32_t)(sizeof(group_t) + q.p->keys * sizeof(key_t) + q.p->states * sizeof(state_t));
    q.most = 1;
    if (grouped) {
        uint64_t held = 0;
        for (uint32_t i = 0;; i++) {
            part_t part;
            if (part_open(&part, i) != WHERRY_OK)
                break;
            held += part.head->rows;
        }
        q.most = GROUP_BYTES_MOST / q.stride;
        if (q.most > held + VECTOR)
            q.most = (uint32_t)held + VECTOR;
        for (q.slots = 4096; q.slots < q.most * 2; q.slots *= 2)
            ;
    }
    need += (uint64_t)q.most * q.stride + (uint64_t)q.slots * sizeof *q.slot;
    uint8_t *at = wherry_scratch(need);
    if (!at)
        return WHERRY_ERR_LIMIT;
    for (uint32_t i = 0; i < q.p->registers; i++, at += each) {
        q.reg[i].buf = at;
        q.reg[i].v = at;
        q.reg[i].ok = at + VECTOR * sizeof(text_t);
    }
    q.group = at;
    q.slot = (uint32_t *)(at + (uint64_t)q.most * q.stride);
    if (!q.p->keys) /* one group, which is there even if there are no rows */
        q.groups = 1;
    return WHERRY_OK;
}

static int32_t constants_fill(void)
{
    for (uint32_t c = 0; c < q.p->constants; c++) {
        const constant_t *k = q.constant + c;
        if (k->reg >= q.p->registers || k->text_at > q.p->text || k->text_size > q.p->text - k->text_at)
            return refuse("the query is damaged");
        void *v = q.reg[k->reg].buf;
        text_t t = {(const uint8_t *)q.text + k->text_at, k->text_size};
        for (uint32_t i = 0; i < VECTOR; i++)
            if (k->kind == K_TEXT)
                ((text_t *)v)[i] = t;
            else if (k->kind == K_BOOL)
                ((uint8_t *)v)[i] = (uint8_t)k->value;
            else
                ((uint64_t *)v)[i] = k->value;
    }
    return WHERRY_OK;
}

static int32_t registers_check(const instr_t *in, uint32_t count)
{
    for (; count; count--, in++) {
        if (in->to >= q.p->registers || in->a >= q.p->registers || in->b >= q.p->registers)
            return refuse("the query is damaged");
        if (in->op != OP_AND && in->op != OP_OR)
            continue;
        if (in->column >= count)
            return refuse("the query is damaged");
        WHERRY_TRY(registers_check(in + 1, in->column));
        count -= in->column;
        in += in->column;
    }
    return WHERRY_OK;
}

WHERRY_ENTRY(payload, size)
{
    WHERRY_TRY(program_open(payload, size));
    WHERRY_TRY(registers_check(q.filter, q.p->filter));
    WHERRY_TRY(registers_check(q.rest, q.p->rest));
    for (uint32_t k = 0; k < q.p->keys; k++)
        if (q.key[k].reg >= q.p->registers)
            return refuse("the query is damaged");
    for (uint32_t k = 0; k < q.p->states; k++)
        if (q.state[k].reg != NONE && q.state[k].reg >= q.p->registers)
            return refuse("the query is damaged");
    if (q.p->condition != NONE && q.p->condition >= q.p->registers)
        return refuse("the query is damaged");
    WHERRY_TRY(room_open());
    WHERRY_TRY(constants_fill());
    WHERRY_TRY(scan());
    if (!q.p->rows)
        WHERRY_TRY(send_groups());
    uint64_t end[] = {q.rows_read, q.chunks_read, q.chunks_skipped};
    WHERRY_TRY(put_byte(R_END));
    WHERRY_TRY(put(end, sizeof end));
    return wherry_reply(q.out, q.filled);
}
