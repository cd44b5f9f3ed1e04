/* rows.h: a dataset's rows as its windows hold them: window 0, records of
 * row_bytes each; window 1, the text of str columns, referred to by offset and
 * size.  Window 0 can be larger than a function's memory: rows are gone through
 * a part at a time, as many as are there at once (table_next). */
#ifndef ROWS_H
#define ROWS_H

#include "shards.h"
#include "wherry.h"

typedef struct {
    const uint8_t *row; /* the first of … */
    uint64_t here;      /* so many, until the next table_next */
    uint64_t shown;     /* with them and all before */
    uint64_t count;     /* of the shard */
    uint32_t bytes;     /* of one row */
    wherry_view_t view;
    int unseen; /* there is more text than fits into a function's memory */
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
    wherry_window_t heap;
    uint64_t held = 0;
    memset(t, 0, sizeof *t);
    int32_t st = wherry_window_at(0, 0, &t->view);
    if (st != WHERRY_OK && st != WHERRY_ERR_NO_WINDOW)
        return st;
    uint64_t size = st == WHERRY_OK ? t->view.total : 0;
    st = shards_held(wherry_self(), &held);
    t->bytes = row_bytes;
    if (st != WHERRY_OK) { /* run on an element without a dataset's table */
        if (!row_bytes)
            return refuse("row_bytes is not given, and there is no table that tells how many rows there are");
        held = size / row_bytes;
    }
    t->count = held;
    if (held && !row_bytes) {
        if (size % held || size / held > UINT32_MAX)
            return refuse("row_bytes is not given, and the window is no whole number of rows");
        t->bytes = (uint32_t)(size / held);
    }
    if (t->count && (!t->bytes || t->count > size / t->bytes))
        return refuse("the window is shorter than its rows: row_bytes is not this dataset's");
    if (t->bytes > WHERRY_VIEW_LEAST && size > t->view.size)
        return refuse("rows of more than 64 KiB, in a shard that is larger than a function's memory");
    st = wherry_window(1, &heap);
    t->unseen = st == WHERRY_ERR_LIMIT;
    if (st == WHERRY_OK) {
        t->heap = (const uint8_t *)heap.addr;
        t->heap_bytes = heap.size;
    }
    return WHERRY_OK;
}

/* Shows the next rows; 0: there are none left. */
WHERRY_HELPER int table_next(table_t *t)
{
    t->here = 0;
    uint64_t offset = t->shown * t->bytes;
    if (t->shown == t->count || !(t->row = (const uint8_t *)wherry_at(0, &t->view, offset, t->bytes)))
        return 0;
    t->here = (t->view.size - (offset - t->view.first)) / t->bytes;
    if (t->here > t->count - t->shown)
        t->here = t->count - t->shown;
    t->shown += t->here;
    return 1;
}

/* Whether table_next takes rows away that it has shown. */
WHERRY_INLINE int table_slides(const table_t *t) { return t->view.size < t->view.total; }

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
    if (c.type == WHERRY_TYPE_STR && t->unseen)
        return refuse("the text of this shard does not fit into a function's memory: load the dataset on more elements");
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
