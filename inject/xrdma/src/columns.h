/* columns.h: the columns of a dataset as its windows hold them.  Window 2i is
 * part i, an Arrow IPC file; window 2i+1 its directory, which says where each
 * column's buffers begin.  docs/columns.md describes the directory. */
#ifndef COLUMNS_H
#define COLUMNS_H

#include "wherry.h"

/* Tells the caller's operator what is wrong, and gives up. */
WHERRY_HELPER int32_t refuse(const char *why)
{
    uint32_t n = 0;
    while (why[n])
        n++;
    wherry_log(why, n);
    return WHERRY_ERR_ARGUMENT;
}

#define PART_MAGIC 0x31445057u /* "WPD1" */

typedef struct {
    uint32_t magic, columns, chunks, zero;
    uint64_t rows, more;
} directory_t;

typedef struct {
    uint32_t type;  /* as stored: bool is bits, text has 32-bit offsets */
    uint32_t index; /* bytes of a number into the dictionary; 0: plain */
    uint64_t words, word_offsets, word_text;
} column_entry_t;

/* Places in the part; 0: there is no such buffer. */
typedef struct {
    uint64_t validity, values, text;
    uint64_t nulls;
    uint64_t flags; /* BOUNDS_GIVEN */
    uint64_t least, most;
} chunk_entry_t;
#define BOUNDS_GIVEN 1u

typedef struct {
    uint64_t first, rows;
} chunk_head_t;

typedef struct {
    const uint8_t *file;
    uint64_t bytes;
    const directory_t *head;
    const column_entry_t *column;
    int passes; /* its file makes room for that of the next part: not all fit into the function's memory */
} part_t;

/* The windows of part i; WHERRY_ERR_NO_WINDOW behind the last. */
WHERRY_HELPER int32_t part_open(part_t *p, uint32_t i)
{
    wherry_window_t file, dir;
    wherry_view_t view;
    WHERRY_TRY(wherry_window(2 * i + 1, &dir));
    int32_t st = wherry_window(2 * i, &file);
    p->passes = st == WHERRY_ERR_LIMIT;
    if (p->passes) {
        WHERRY_TRY(wherry_window_at(2 * i, 0, &view));
        if (view.size != view.total) /* rows of one value, which are one window however many they are */
            return refuse("a node has more of these rows than a function's memory holds: load them as a column of a Parquet or Arrow file, or with --types, or over more nodes");
        file = (wherry_window_t){view.addr, view.flags, view.size};
    } else if (st == WHERRY_ERR_NO_WINDOW) /* its directory says that it has no rows */
        file = (wherry_window_t){0};
    else if (st != WHERRY_OK)
        return st;
    p->file = (const uint8_t *)file.addr;
    p->bytes = file.size;
    p->head = (const directory_t *)dir.addr;
    p->column = (const column_entry_t *)(p->head + 1);
    if (dir.size < sizeof *p->head || p->head->magic != PART_MAGIC)
        return refuse("the dataset holds no columns: load a Parquet file");
    return WHERRY_OK;
}

WHERRY_INLINE const chunk_head_t *part_chunk(const part_t *p, uint32_t chunk)
{
    uint32_t n = p->head->columns;
    uint64_t step = sizeof(chunk_head_t) + (uint64_t)n * sizeof(chunk_entry_t);
    return (const chunk_head_t *)((const uint8_t *)(p->column + n) + chunk * step);
}

WHERRY_INLINE const chunk_entry_t *chunk_column(const chunk_head_t *c, uint32_t column)
{
    return (const chunk_entry_t *)(c + 1) + column;
}

#endif
