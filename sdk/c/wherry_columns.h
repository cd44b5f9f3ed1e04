/* wherry_columns.h: the columns of a dataset, where the function runs.
 *
 * The manifest says that the function reads columns by its first window,
 * {"name": "columns"}, and has a parameter of type "column" for each one that
 * it looks at; the caller names a column, or the parameter's default does:
 *
 *     typedef struct { wherry_column_t path, status; } params_t;
 *     ...
 *     wherry_chunk_t chunk = {0};
 *     wherry_cells_t path, status;
 *     for (;;) {
 *         WHERRY_TRY(wherry_chunk_next(&chunk));
 *         if (!chunk.rows)
 *             break;
 *         WHERRY_TRY(wherry_cells(&chunk, params->path, &path));
 *         WHERRY_TRY(wherry_cells(&chunk, params->status, &status));
 *         for (uint32_t i = 0; i < chunk.rows; i++)
 *             if (wherry_valid(&status, i) && wherry_cell_int(&status, i) >= 500)
 *                 text = wherry_cell_text(&path, i, &size);
 *     }
 *
 * Nothing is copied: the values are Arrow's, where the node holds them. Only
 * pages that are read are touched. A shard without rows has no chunk. Where a
 * node has several workers ("start": "chunk"), each is shown its own share of
 * the chunks; unless the manifest has a parameter "workers", by which a function
 * shares rows in its own way (WHERRY_WORKERS says so, which fn build defines):
 * then each is shown all. A shard
 * of more than some 3.5 GiB does not fit into a function's memory: one that is
 * to read it too says wherry_chunk_slide in place of wherry_chunk_next, and
 * copies what it keeps of a chunk.
 * docs/columns.md describes the windows that this reads. */
#ifndef WHERRY_COLUMNS_H
#define WHERRY_COLUMNS_H

#include "wherry.h"

/* Rows of the shard whose values lie together: at most 1,048,576. */
typedef struct {
    uint64_t first; /* the row of this shard's part that is row 0 of the chunk */
    uint32_t rows;  /* 0: there are no more */
    /* How many workers share the shard's chunks (0: not asked yet), which of
     * them this is, and whose the next chunk is. */
    uint32_t workers, worker, turn;
    /* Where that is; for the functions below. */
    uint32_t part, next, chunks, columns;
    const uint8_t *file, *directory, *entry;
} wherry_chunk_t;

/* A column's values in a chunk. */
typedef struct {
    uint32_t type;           /* WHERRY_TYPE_...: a date or a time is an integer, a decimal WHERRY_TYPE_BYTES + 16 */
    uint32_t width;          /* bytes of a value; 0: bool (bits) or text */
    const void *values;      /* of fixed width: an array of them, for loops that want one */
    const uint8_t *validity; /* bits, 1: there is a value; NULL: no value is missing */
    const uint8_t *text;
    const uint32_t *offset;  /* of text: where each begins */
    uint32_t word;           /* bytes of a number into a dictionary, whose words offset has; 0: there is none */
} wherry_cells_t;

#define WHERRY_PART_MAGIC 0x31445057u /* "WPD1" */

WHERRY_INLINE uint32_t wherry_directory_u32(const uint8_t *at) { return *(const uint32_t *)at; }
WHERRY_INLINE uint64_t wherry_directory_u64(const uint8_t *at) { return *(const uint64_t *)at; }

/* Opens the next part of the shard, which may have no rows; no directory: there are no more. */
WHERRY_HELPER int32_t wherry_part_next(wherry_chunk_t *c)
{
    wherry_window_t file = {0}, directory;
    c->chunks = c->next = 0;
    c->directory = NULL;
    int32_t st = wherry_window(2 * c->part + 1, &directory);
    if (st == WHERRY_ERR_NO_WINDOW)
        return WHERRY_OK;
    if (st != WHERRY_OK)
        return st;
    c->directory = (const uint8_t *)directory.addr;
    if (directory.size < 32 || wherry_directory_u32(c->directory) != WHERRY_PART_MAGIC)
        return WHERRY_ERR_ARGUMENT; /* the dataset holds no columns */
    c->columns = wherry_directory_u32(c->directory + 4);
    c->chunks = wherry_directory_u32(c->directory + 8);
    st = wherry_window(2 * c->part++, &file);
    c->file = (const uint8_t *)file.addr;
    return st == WHERRY_ERR_NO_WINDOW ? WHERRY_OK : st;
}

/* Finds how many workers this element has, and which of them runs here: numbers
 * that stand for one element have the same first row. */
WHERRY_HELPER int32_t wherry_chunk_workers(wherry_chunk_t *c)
{
    c->workers = 1;
    c->worker = c->turn = 0;
#ifndef WHERRY_WORKERS
    int32_t self = wherry_self(), elements = wherry_elements();
    uint64_t local;
    if (elements == 1)
        return WHERRY_OK;
    int64_t row = wherry_row(0, self, 0); /* there is one: it has a chunk */
    int32_t first = row < 0 ? (int32_t)row : wherry_owner(0, (uint64_t)row, &local);
    if (first < 0 || first > self)
        return first < 0 ? first : WHERRY_ERR_ARGUMENT;
    c->worker = (uint32_t)(self - first);
    while (first + (int32_t)c->workers < elements && wherry_row(0, first + (int32_t)c->workers, 0) == row)
        c->workers++;
#endif
    return WHERRY_OK;
}

/* Shows the next chunk of the part, if it is this worker's; else passes it over. */
WHERRY_HELPER int32_t wherry_chunk_show(wherry_chunk_t *c)
{
    if (!c->workers)
        WHERRY_TRY(wherry_chunk_workers(c));
    uint32_t turn = c->turn;
    c->turn = turn + 1 == c->workers ? 0 : turn + 1;
    if (turn != c->worker) {
        c->next++;
        return WHERRY_OK;
    }
    c->entry = c->directory + 32 + 32 * (uint64_t)c->columns + c->next * (16 + 56 * (uint64_t)c->columns);
    c->first = wherry_directory_u64(c->entry);
    c->rows = (uint32_t)wherry_directory_u64(c->entry + 8);
    c->next++;
    return WHERRY_OK;
}

/* Shows the next rows of the shard, of several workers the next that are this
 * one's. Begin with {0}; rows is 0 behind the last. */
WHERRY_HELPER int32_t wherry_chunk_next(wherry_chunk_t *c)
{
    c->rows = 0;
    while (!c->rows) {
        if (c->next == c->chunks) {
            WHERRY_TRY(wherry_part_next(c));
            if (!c->directory)
                return WHERRY_OK;
        } else {
            WHERRY_TRY(wherry_chunk_show(c));
        }
    }
    return WHERRY_OK;
}

/* The same of a shard of any size. What the chunk before showed, texts too, may
 * be gone: copy what is to be kept. */
WHERRY_HELPER int32_t wherry_chunk_slide(wherry_chunk_t *c)
{
    c->rows = 0;
    while (!c->rows) {
        if (c->next < c->chunks) {
            WHERRY_TRY(wherry_chunk_show(c));
            continue;
        }
        int32_t st = wherry_part_next(c);
        if (st == WHERRY_ERR_LIMIT) { /* beside the others; it takes the place of one of them */
            wherry_view_t whole;
            st = wherry_window_at(2 * (c->part - 1), 0, &whole);
            c->file = (const uint8_t *)whole.addr;
            if (st == WHERRY_OK && whole.size != whole.total)
                st = WHERRY_ERR_LIMIT;
        }
        WHERRY_TRY(st);
        if (!c->directory)
            return WHERRY_OK;
    }
    return WHERRY_OK;
}

/* The values of a column, named by a parameter. WHERRY_ERR_ARGUMENT: there is
 * no such column, or each of its values is a list or a struct. */
WHERRY_HELPER int32_t wherry_cells(const wherry_chunk_t *c, wherry_column_t column, wherry_cells_t *out)
{
    static const uint8_t bytes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 0, 0};
    if (column.offset >= c->columns)
        return WHERRY_ERR_ARGUMENT;
    const uint8_t *kind = c->directory + 32 + 32 * (uint64_t)column.offset, *entry = c->entry + 16 + 56 * (uint64_t)column.offset;
    out->type = wherry_directory_u32(kind);
    if (out->type > WHERRY_TYPE_STR && out->type <= WHERRY_TYPE_BYTES)
        return WHERRY_ERR_ARGUMENT;
    out->width = out->type < sizeof bytes ? bytes[out->type] : out->type - WHERRY_TYPE_BYTES;
    out->word = wherry_directory_u32(kind + 4);
    out->validity = wherry_directory_u64(entry + 24) ? c->file + wherry_directory_u64(entry) : NULL;
    out->values = c->file + wherry_directory_u64(entry + 8);
    out->text = c->file + wherry_directory_u64(out->word ? kind + 24 : entry + 16);
    out->offset = (const uint32_t *)(out->word ? c->file + wherry_directory_u64(kind + 16) : out->values);
    return WHERRY_OK;
}

/* Whether row i has a value. */
WHERRY_INLINE int wherry_valid(const wherry_cells_t *c, uint32_t i) { return !c->validity || (c->validity[i >> 3] >> (i & 7) & 1); }

/* An integer, a bool (0 or 1), or what a date or time counts; 0 if it is missing or of another type. */
WHERRY_INLINE int64_t wherry_cell_int(const wherry_cells_t *c, uint32_t i)
{
    if (!wherry_valid(c, i))
        return 0;
    switch (c->type) {
    case WHERRY_TYPE_I8: return ((const int8_t *)c->values)[i];
    case WHERRY_TYPE_I16: return ((const int16_t *)c->values)[i];
    case WHERRY_TYPE_I32: return ((const int32_t *)c->values)[i];
    case WHERRY_TYPE_U8: return ((const uint8_t *)c->values)[i];
    case WHERRY_TYPE_U16: return ((const uint16_t *)c->values)[i];
    case WHERRY_TYPE_U32: return ((const uint32_t *)c->values)[i];
    case WHERRY_TYPE_I64:
    case WHERRY_TYPE_U64: return ((const int64_t *)c->values)[i];
    case WHERRY_TYPE_BOOL: return ((const uint8_t *)c->values)[i >> 3] >> (i & 7) & 1;
    }
    return 0;
}

/* A number as a 64-bit float; 0 if it is missing or of another type. */
WHERRY_INLINE double wherry_cell_float(const wherry_cells_t *c, uint32_t i)
{
    if (c->type == WHERRY_TYPE_F64)
        return wherry_valid(c, i) ? ((const double *)c->values)[i] : 0;
    if (c->type == WHERRY_TYPE_F32)
        return wherry_valid(c, i) ? ((const float *)c->values)[i] : 0;
    int64_t v = wherry_cell_int(c, i);
    return c->type == WHERRY_TYPE_U64 ? (double)(uint64_t)v : (double)v;
}

/* Text, or the bytes of a value of fixed width; NULL and no bytes if it is missing. */
WHERRY_INLINE const char *wherry_cell_text(const wherry_cells_t *c, uint32_t i, uint32_t *size)
{
    *size = 0;
    if (!wherry_valid(c, i))
        return NULL;
    if (c->type != WHERRY_TYPE_STR) {
        *size = c->width;
        return (const char *)c->values + (uint64_t)i * c->width;
    }
    if (c->word)
        i = c->word == 1 ? ((const uint8_t *)c->values)[i] : ((const uint16_t *)c->values)[i];
    *size = c->offset[i + 1] - c->offset[i];
    return (const char *)c->text + c->offset[i];
}

/* The structs of Arrow's C Data Interface, for code that takes them, such as
 * nanoarrow: https://arrow.apache.org/docs/format/CDataInterface.html. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

/* A column's values in a chunk as an Arrow array. Its members point into each
 * other: it is not to be copied. */
typedef struct {
    struct ArrowArray array, words; /* words: the dictionary, if there is one */
    const void *buffers[3], *word_buffers[3];
} wherry_batch_t;

WHERRY_HELPER void wherry_batch_release(struct ArrowArray *array)
{
    if (array->dictionary)
        array->dictionary->release = NULL;
    array->release = NULL; /* nothing was allocated */
}

/* Writes a column's values in a chunk as an Arrow array, which shows them where
 * they lie for as long as the chunk does: numbers, dates and times, bool (bits),
 * bytesN and decimals (fixed width), text and bytes with 32-bit offsets, or with
 * a dictionary of such. Status as of wherry_cells. */
WHERRY_HELPER int32_t wherry_batch(const wherry_chunk_t *c, wherry_column_t column, wherry_batch_t *out)
{
    wherry_cells_t cells;
    WHERRY_TRY(wherry_cells(c, column, &cells));
    *out = (wherry_batch_t){.buffers = {cells.validity, cells.values, cells.text}};
    out->array = (struct ArrowArray){
        .length = c->rows, .null_count = (int64_t)wherry_directory_u64(c->entry + 16 + 56 * (uint64_t)column.offset + 24),
        .n_buffers = cells.type == WHERRY_TYPE_STR && !cells.word ? 3 : 2, .buffers = out->buffers, .release = wherry_batch_release};
    if (cells.word) {
        out->word_buffers[1] = cells.offset;
        out->word_buffers[2] = cells.text;
        out->words = (struct ArrowArray){
            .length = (int64_t)wherry_directory_u64(c->directory + 32 + 32 * (uint64_t)column.offset + 8),
            .n_buffers = 3, .buffers = out->word_buffers, .release = wherry_batch_release};
        out->array.dictionary = &out->words;
    }
    return WHERRY_OK;
}

#endif
