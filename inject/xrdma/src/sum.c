/* sum: number, sum, least and greatest of a numeric column's values, of the
 * rows that match a condition.
 *
 * Parameters {column, row_bytes} or {column, row_bytes, where, op, value}.  One row
 * {u64 n, f64 sum, f64 min, f64 max}, to be merged; where no row matches, 0, 0,
 * and what is least and greatest of nothing, +inf and -inf.
 * Values are added as doubles, with the rounding errors of each addition kept
 * and added at the end (Neumaier, 1974).  NaN makes the sum NaN; it is neither
 * least nor greatest. */
#include "predicate.h"

typedef struct {
    wherry_column_t column;
    uint32_t row_bytes;
    wherry_column_t where; /* column of the condition */
    wherry_str_t op, value;
} params_t;

typedef struct {
    uint64_t n;
    double sum, min, max;
} row_t;

WHERRY_INLINE double cell_number(const uint8_t *cell, uint32_t type)
{
    if (type == WHERRY_TYPE_F64)
        return load_f64(cell);
    if (type == WHERRY_TYPE_F32)
        return load_f32(cell);
    uint64_t x = cell_integer(cell, type);
    return is_signed(type) ? (double)(int64_t)x : (double)x;
}

WHERRY_ENTRY(payload, size)
{
    static predicate_t p;
    table_t t;
    const params_t *in = (const params_t *)payload;
    if (size < offsetof(params_t, where))
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(table_open(&t, in->row_bytes));
    WHERRY_TRY(column_check(&t, in->column));
    if (is_text(in->column.type))
        return refuse("sum needs a column of numbers");
    p.op = OP_ANY;
    p.broken = 0;
    if (size >= sizeof *in)
        WHERRY_TRY(predicate_open(&p, &t, in->where, payload, size, in->op, in->value));
    struct {
        uint32_t rows, zero;
        row_t row;
    } part = {1, 0, {0, 0, __builtin_inf(), -__builtin_inf()}};
    double sum = 0, lost = 0;
    while (table_next(&t)) {
        const uint8_t *row = t.row;
        for (uint64_t i = t.here; i; i--, row += t.bytes) {
            if (!predicate_row(&p, row))
                continue;
            double x = cell_number(row + in->column.offset, in->column.type), next = sum + x;
            lost += __builtin_fabs(sum) >= __builtin_fabs(x) ? (sum - next) + x : (x - next) + sum;
            sum = next;
            part.row.n++;
            if (x < part.row.min)
                part.row.min = x;
            if (x > part.row.max)
                part.row.max = x;
        }
    }
    if (p.broken)
        return refuse("a row's text lies outside the window with text");
    /* Where the sum is infinite, what was lost is NaN. */
    part.row.sum = lost == lost ? sum + lost : sum;
    return wherry_reply(&part, sizeof part);
}
