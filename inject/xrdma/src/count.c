/* count: how many rows match a condition on one column.
 *
 * Parameters {column, op, value, row_bytes}; see predicate.h for the
 * conditions.  One row {u64 matched, u64 scanned} from each element, to be
 * added up. */
#include "predicate.h"

typedef struct {
    wherry_column_t column;
    wherry_str_t op, value;
    uint32_t row_bytes;
} params_t;

WHERRY_ENTRY(payload, size)
{
    static predicate_t p;
    table_t t;
    if (size < sizeof(params_t))
        return WHERRY_ERR_ARGUMENT;
    const params_t *in = (const params_t *)payload;
    WHERRY_TRY(table_open(&t, in->row_bytes));
    WHERRY_TRY(predicate_open(&p, &t, in->column, payload, size, in->op, in->value));
    struct {
        uint32_t rows, zero;
        uint64_t matched, scanned;
    } part = {1, 0, predicate_count(&p, &t), t.count};
    if (p.broken)
        return refuse("a row's text lies outside the window with text");
    return wherry_reply(&part, sizeof part);
}
