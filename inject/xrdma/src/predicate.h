/* predicate.h: a condition on one column: eq ne lt le gt ge on any column,
 * prefix and contains on text; any is always true.
 *
 * On numbers each becomes a range that is tested with one comparison, possibly
 * inverted.  NaN matches ne only. */
#ifndef PREDICATE_H
#define PREDICATE_H

#include "number.h"
#include "rows.h"

enum { OP_ANY, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_PREFIX, OP_CONTAINS };

typedef struct {
    wherry_column_t column;
    uint32_t op;
    int invert;
    uint64_t low, span;    /* integers: x - low <= span */
    double from, to;       /* floats: from <= x <= to */
    const uint8_t *text;   /* text */
    uint32_t size;
    uint32_t skip[256];    /* contains: how far to move on, by last byte seen */
    const table_t *table;
    int broken; /* a cell's text left the window */
} predicate_t;

static int parse_op(const char *s, uint32_t n)
{
    static const struct {
        char name[9], sign[3];
    } ops[] = {{"any", ""},  {"eq", "=="}, {"ne", "!="}, {"lt", "<"},    {"le", "<="},
               {"gt", ">"},  {"ge", ">="}, {"prefix", "^"}, {"contains", "~"}};
    if (n == 0)
        return OP_ANY;
    if (n == 1 && *s == '=')
        return OP_EQ;
    for (uint32_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        uint32_t a = 0, b = 0;
        while (a < n && ops[i].name[a] && ops[i].name[a] == s[a])
            a++;
        while (b < n && b < 2 && ops[i].sign[b] && ops[i].sign[b] == s[b])
            b++;
        if ((a == n && !ops[i].name[a]) || (b == n && !ops[i].sign[b]))
            return (int)i;
    }
    return -1;
}

/* x - low <= span for every x, or with invert for none. */
static void match_all(predicate_t *p, int none)
{
    p->low = 0;
    p->span = UINT64_MAX;
    p->invert = none;
}

static int32_t integer_range(predicate_t *p, const char *value, uint32_t n)
{
    integer_t v;
    int negatives = is_signed(p->column.type);
    if (p->column.type == WHERRY_TYPE_BOOL && same_word(value, n, "true"))
        v = (integer_t){0, 0, 1};
    else if (p->column.type == WHERRY_TYPE_BOOL && same_word(value, n, "false"))
        v = (integer_t){0, 0, 0};
    else if (!parse_integer(value, n, &v))
        return refuse("value is not an integer, but the column holds integers");
    uint64_t least = negatives ? 1ull << 63 : 0, most = negatives ? INT64_MAX : UINT64_MAX;
    uint64_t x = v.negative ? 0 - v.magnitude : v.magnitude;
    int below = v.negative && (v.huge || (v.magnitude && (!negatives || v.magnitude > 1ull << 63)));
    int above = !v.negative && (v.huge || v.magnitude > most);
    if (below || above) {
        int all = p->op == OP_NE || (below && (p->op == OP_GT || p->op == OP_GE))
               || (above && (p->op == OP_LT || p->op == OP_LE));
        match_all(p, !all);
        return WHERRY_OK;
    }
    uint64_t from = least, to = most; /* both ends belong to the range */
    switch (p->op) {
    case OP_NE:
        p->invert = 1; /* fall through */
    case OP_EQ:
        from = to = x;
        break;
    case OP_GE: /* not below x */
        from = x;
        break;
    case OP_LT:
        p->invert = 1;
        from = x;
        break;
    case OP_LE:
        to = x;
        break;
    case OP_GT:
        p->invert = 1;
        to = x;
        break;
    }
    p->low = from;
    p->span = to - from;
    return WHERRY_OK;
}

/* The next double above (up) or below x, which is not NaN. */
static double next_double(double x, int up)
{
    union {
        double value;
        uint64_t bits;
    } u = {x};
    if (x == 0)
        u.bits = 1 | (up ? 0 : 1ull << 63);
    else if ((x > 0) == (up != 0))
        u.bits++;
    else
        u.bits--;
    return u.value;
}

static int32_t float_range(predicate_t *p, const char *value, uint32_t n)
{
    double v, inf = __builtin_inf();
    if (!parse_double(value, n, &v))
        return refuse("value is not a number of at most 64 digits, but the column holds numbers");
    if (p->column.type == WHERRY_TYPE_F32)
        v = (float)v; /* so that 0.1 means the column's 0.1 */
    p->from = -inf;
    p->to = inf;
    if (v != v) {
        p->from = inf;
        p->to = -inf;
        p->invert = p->op == OP_NE;
        return WHERRY_OK;
    }
    switch (p->op) {
    case OP_NE:
        p->invert = 1; /* fall through */
    case OP_EQ:
        p->from = p->to = v;
        break;
    case OP_LT:
        if (v == -inf)
            p->from = inf;
        p->to = v == -inf ? -inf : next_double(v, 0);
        break;
    case OP_LE:
        p->to = v;
        break;
    case OP_GT:
        if (v == inf)
            p->to = -inf;
        p->from = v == inf ? inf : next_double(v, 1);
        break;
    case OP_GE:
        p->from = v;
        break;
    }
    return WHERRY_OK;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Fixed bytes are written as hex digits.  They are decoded in place: the payload is ours. */
static int32_t unhex(predicate_t *p)
{
    uint8_t *b = (uint8_t *)p->text;
    if (p->size % 2)
        return refuse("value has an odd number of hex digits, but the column holds bytes");
    p->size /= 2;
    for (uint32_t i = 0; i < p->size; i++) {
        int high = hex_digit(b[2 * i]), low = hex_digit(b[2 * i + 1]);
        if (high < 0 || low < 0)
            return refuse("value is not hex digits, but the column holds bytes");
        b[i] = (uint8_t)(high << 4 | low);
    }
    return WHERRY_OK;
}

/* op and value lie in the payload, as texts. */
WHERRY_HELPER int32_t predicate_open(predicate_t *p, const table_t *t, wherry_column_t c, const void *payload,
                                     uint32_t size, wherry_str_t op, wherry_str_t value)
{
    const char *name = wherry_text(payload, size, op), *text = wherry_text(payload, size, value);
    int code = name ? parse_op(name, op.size) : -1;
    memset(p, 0, sizeof *p);
    if (code < 0)
        return refuse("op is none of any eq ne lt le gt ge prefix contains");
    if (!text)
        return refuse("value leaves the payload");
    p->op = (uint32_t)code;
    p->column = c;
    p->table = t;
    p->text = (const uint8_t *)text;
    p->size = value.size;
    WHERRY_TRY(column_check(t, c));
    if (p->op == OP_ANY)
        return WHERRY_OK;
    if (!is_text(c.type) && (p->op == OP_PREFIX || p->op == OP_CONTAINS))
        return refuse("prefix and contains need a column of text or bytes");
    if (is_float(c.type))
        return float_range(p, text, value.size);
    if (!is_text(c.type))
        return integer_range(p, text, value.size);
    if (c.type != WHERRY_TYPE_STR)
        WHERRY_TRY(unhex(p));
    if (p->op == OP_CONTAINS && p->size) {
        for (uint32_t i = 0; i < 256; i++)
            p->skip[i] = p->size;
        for (uint32_t i = 0; i + 1 < p->size; i++)
            p->skip[p->text[i]] = p->size - 1 - i;
    }
    return WHERRY_OK;
}

/* Horspool's search: look at the last byte of each place first. */
static int contains(const predicate_t *p, const uint8_t *s, uint32_t n)
{
    uint32_t m = p->size;
    if (m == 0)
        return 1;
    uint8_t last = p->text[m - 1];
    for (uint64_t i = m - 1; i < n;) {
        uint8_t c = s[i];
        if (c == last && memcmp(s + i - (m - 1), p->text, m - 1) == 0)
            return 1;
        i += p->skip[c];
    }
    return 0;
}

static int match_text(predicate_t *p, const uint8_t *cell)
{
    uint32_t n = p->column.type - WHERRY_TYPE_BYTES;
    const uint8_t *s = cell;
    if (p->column.type == WHERRY_TYPE_STR && !(s = cell_text(p->table, cell, &n))) {
        p->broken = 1;
        return 0;
    }
    uint32_t shared = n < p->size ? n : p->size;
    switch (p->op) {
    case OP_EQ:
    case OP_NE:
        return (n == p->size && memcmp(s, p->text, n) == 0) == (p->op == OP_EQ);
    case OP_PREFIX:
        return n >= p->size && memcmp(s, p->text, shared) == 0;
    case OP_CONTAINS:
        return contains(p, s, n);
    }
    int order = memcmp(s, p->text, shared);
    if (order == 0)
        order = n < p->size ? -1 : n > p->size;
    switch (p->op) {
    case OP_LT:
        return order < 0;
    case OP_LE:
        return order <= 0;
    case OP_GT:
        return order > 0;
    }
    return order >= 0;
}

/* Whether a row matches; p->broken says afterwards that the dataset is damaged. */
WHERRY_INLINE int predicate_row(predicate_t *p, const uint8_t *row)
{
    const uint8_t *cell = row + p->column.offset;
    if (p->op == OP_ANY)
        return 1;
    if (is_text(p->column.type))
        return match_text(p, cell);
    if (is_float(p->column.type)) {
        double x = p->column.type == WHERRY_TYPE_F32 ? (double)load_f32(cell) : load_f64(cell);
        return (x >= p->from && x <= p->to) != p->invert;
    }
    return (cell_integer(cell, p->column.type) - p->low <= p->span) != p->invert;
}

/* How many of the rows here match.  A loop for each type keeps decisions out of it. */
WHERRY_HELPER uint64_t predicate_count_here(predicate_t *p, const table_t *t)
{
    const uint8_t *cell = t->row + p->column.offset;
    uint64_t n = 0, low = p->low, span = p->span, rows = t->here;
    double from = p->from, to = p->to;
    uint32_t step = t->bytes;
    if (p->op == OP_ANY)
        return rows;
#define COUNT_INTEGERS(code, name, wide)                       \
    case code:                                                 \
        for (uint64_t i = rows; i; i--, cell += step)          \
            n += (uint64_t)(wide)load_##name(cell) - low <= span; \
        break;
#define COUNT_FLOATS(code, name)                               \
    case code:                                                 \
        for (uint64_t i = rows; i; i--, cell += step) {        \
            double x = load_##name(cell);                      \
            n += x >= from && x <= to;                         \
        }                                                      \
        break;
    switch (p->column.type) {
        COUNT_INTEGERS(WHERRY_TYPE_I8, i8, int64_t)
        COUNT_INTEGERS(WHERRY_TYPE_I16, i16, int64_t)
        COUNT_INTEGERS(WHERRY_TYPE_I32, i32, int64_t)
        COUNT_INTEGERS(WHERRY_TYPE_I64, i64, int64_t)
        COUNT_INTEGERS(WHERRY_TYPE_U8, u8, uint64_t)
        COUNT_INTEGERS(WHERRY_TYPE_BOOL, u8, uint64_t)
        COUNT_INTEGERS(WHERRY_TYPE_U16, u16, uint64_t)
        COUNT_INTEGERS(WHERRY_TYPE_U32, u32, uint64_t)
        COUNT_INTEGERS(WHERRY_TYPE_U64, u64, uint64_t)
        COUNT_FLOATS(WHERRY_TYPE_F32, f32)
        COUNT_FLOATS(WHERRY_TYPE_F64, f64)
    default:
        for (uint64_t i = rows; i; i--, cell += step)
            n += (uint64_t)match_text(p, cell);
        return n;
    }
    return p->invert ? rows - n : n;
}

/* How many rows match. */
WHERRY_HELPER uint64_t predicate_count(predicate_t *p, table_t *t)
{
    uint64_t n = 0;
    while (table_next(t))
        n += predicate_count_here(p, t);
    return n;
}

#endif
