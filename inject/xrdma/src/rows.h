/* rows.h: a dataset's rows as its windows hold them: window 0, records of
 * row_bytes each; window 1, the text of str columns, referred to by offset and
 * size. */
#ifndef ROWS_H
#define ROWS_H

#include "shards.h"
#include "wherry.h"

typedef struct {
    const uint8_t *row;
    uint64_t count;
    uint32_t bytes; /* of one row */
    const uint8_t *heap;
    uint64_t heap_bytes;
} table_t;

/* Tells the caller's operator what is wrong, and gives up. */
WHERRY_HELPER int32_t refuse(const char *why)
{
    uint32_t n = 0;
    while (why[n])
        n++;
    wherry_log(why, n);
    return WHERRY_ERR_ARGUMENT;
}

/* row_bytes 0: the window's size divided by the number of rows. */
WHERRY_HELPER int32_t table_open(table_t *t, uint32_t row_bytes)
{
    wherry_window_t rows, heap;
    uint64_t held = 0;
    WHERRY_TRY(wherry_window_or_empty(0, &rows));
    int32_t st = shards_held(wherry_self(), &held);
    t->row = (const uint8_t *)rows.addr;
    t->bytes = row_bytes;
    if (st != WHERRY_OK) { /* run on an element without a dataset's table */
        if (!row_bytes)
            return refuse("row_bytes is not given, and there is no table that tells how many rows there are");
        held = rows.size / row_bytes;
    }
    t->count = held;
    if (held && !row_bytes) {
        if (rows.size % held || rows.size / held > UINT32_MAX)
            return refuse("row_bytes is not given, and the window is no whole number of rows");
        t->bytes = (uint32_t)(rows.size / held);
    }
    if (t->count && (!t->bytes || t->count > rows.size / t->bytes))
        return refuse("the window is shorter than its rows: row_bytes is not this dataset's");
    t->heap = NULL;
    t->heap_bytes = 0;
    if (wherry_window(1, &heap) == WHERRY_OK) {
        t->heap = (const uint8_t *)heap.addr;
        t->heap_bytes = heap.size;
    }
    return WHERRY_OK;
}

/* Bytes of a column in a row; 0 for a type that no row has. */
WHERRY_HELPER uint32_t column_bytes(wherry_column_t c)
{
    switch (c.type) {
    case WHERRY_TYPE_I8:
    case WHERRY_TYPE_U8:
    case WHERRY_TYPE_BOOL:
        return 1;
    case WHERRY_TYPE_I16:
    case WHERRY_TYPE_U16:
        return 2;
    case WHERRY_TYPE_I32:
    case WHERRY_TYPE_U32:
    case WHERRY_TYPE_F32:
        return 4;
    case WHERRY_TYPE_I64:
    case WHERRY_TYPE_U64:
    case WHERRY_TYPE_F64:
    case WHERRY_TYPE_STR:
        return 8;
    }
    return c.type > WHERRY_TYPE_BYTES ? c.type - WHERRY_TYPE_BYTES : 0;
}

WHERRY_HELPER int32_t column_check(const table_t *t, wherry_column_t c)
{
    uint32_t n = column_bytes(c);
    if (!n)
        return refuse("a column has a type that this function does not know");
    if (t->count && (n > t->bytes || c.offset > t->bytes - n))
        return refuse("a column lies outside the row: row_bytes is not this dataset's");
    return WHERRY_OK;
}

/* Loads that need no alignment; compilers make one instruction of them. */
#define LOADER(name, type)                               \
    WHERRY_INLINE type load_##name(const uint8_t *p)     \
    {                                                    \
        type v;                                          \
        __builtin_memcpy(&v, p, sizeof v);               \
        return v;                                        \
    }
LOADER(i8, int8_t)
LOADER(i16, int16_t)
LOADER(i32, int32_t)
LOADER(i64, int64_t)
LOADER(u8, uint8_t)
LOADER(u16, uint16_t)
LOADER(u32, uint32_t)
LOADER(u64, uint64_t)
LOADER(f32, float)
LOADER(f64, double)
LOADER(str, wherry_str_t)

/* The text of a str cell, or NULL if it leaves the window. */
WHERRY_INLINE const uint8_t *cell_text(const table_t *t, const uint8_t *cell, uint32_t *size)
{
    wherry_str_t s = load_str(cell);
    *size = s.size;
    if (s.size == 0) /* there may be no window, nor an offset that means anything */
        return cell;
    if (WHERRY_UNLIKELY((uint64_t)s.offset + s.size > t->heap_bytes))
        return NULL;
    return t->heap + s.offset;
}

/* An integer cell (or a bool), sign-extended. */
WHERRY_INLINE uint64_t cell_integer(const uint8_t *p, uint32_t type)
{
    switch (type) {
    case WHERRY_TYPE_I8:
        return (uint64_t)(int64_t)load_i8(p);
    case WHERRY_TYPE_I16:
        return (uint64_t)(int64_t)load_i16(p);
    case WHERRY_TYPE_I32:
        return (uint64_t)(int64_t)load_i32(p);
    case WHERRY_TYPE_I64:
    case WHERRY_TYPE_U64:
        return load_u64(p);
    case WHERRY_TYPE_U16:
        return load_u16(p);
    case WHERRY_TYPE_U32:
        return load_u32(p);
    }
    return load_u8(p);
}

WHERRY_INLINE int is_signed(uint32_t type) { return type >= WHERRY_TYPE_I8 && type <= WHERRY_TYPE_I64; }
WHERRY_INLINE int is_float(uint32_t type) { return type == WHERRY_TYPE_F32 || type == WHERRY_TYPE_F64; }
WHERRY_INLINE int is_text(uint32_t type) { return type == WHERRY_TYPE_STR || type > WHERRY_TYPE_BYTES; }

#endif
