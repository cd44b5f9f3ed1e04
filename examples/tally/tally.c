/* tally: how many requests for each path ended with at least a given status.
 *
 * It runs on every node that holds rows, at the same time; each answers with
 * its own counts, and the manifest (tally.json) says how those are merged:
 * rows that agree in path become one, with the sum of n. */
#include <stddef.h>

#include "wherry_columns.h"

/* The parameters, as tally.json has them. */
struct params {
    uint16_t least;
    wherry_column_t path, status;
};

struct out {
    wherry_str_t path;
    uint64_t n;
};

#define SLOTS 4096u

/* Statics are as declared at the start of every run: no counts are left from another. */
static struct {
    const char *path;
    uint32_t size;
    uint64_t n;
} table[SLOTS];

static uint32_t used;
static uint8_t part[WHERRY_PART_BYTES];

static int32_t add(const char *path, uint32_t size)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < size; i++)
        h = (h ^ (uint8_t)path[i]) * 16777619u;
    uint32_t at = h % SLOTS;
    while (table[at].n && (table[at].size != size || memcmp(table[at].path, path, size)))
        at = (at + 1) % SLOTS;
    if (!table[at].n++) {
        if (++used == SLOTS)
            return WHERRY_ERR_LIMIT;
        table[at].path = path;
        table[at].size = size;
    }
    return WHERRY_OK;
}

WHERRY_ENTRY(payload, size)
{
    const struct params *in = (const struct params *)payload;
    if (size < sizeof *in)
        return WHERRY_ERR_ARGUMENT;
    wherry_chunk_t chunk = {0};
    for (;;) {
        wherry_cells_t path, status;
        WHERRY_TRY(wherry_chunk_next(&chunk));
        if (!chunk.rows)
            break;
        WHERRY_TRY(wherry_cells(&chunk, in->path, &path));
        WHERRY_TRY(wherry_cells(&chunk, in->status, &status));
        for (uint32_t i = 0; i < chunk.rows; i++) {
            uint32_t n;
            if (!wherry_valid(&status, i) || !wherry_valid(&path, i) || wherry_cell_int(&status, i) < in->least)
                continue;
            const char *text = wherry_cell_text(&path, i, &n);
            WHERRY_TRY(add(text, n));
        }
    }
    wherry_rows_t out;
    wherry_rows_init(&out, part, sizeof part, sizeof(struct out));
    wherry_rows_string(&out, offsetof(struct out, path));
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (!table[i].n)
            continue;
        struct out *o = wherry_rows_add(&out, table[i].size);
        if (!o)
            return out.status;
        o->n = table[i].n;
        wherry_rows_put(&out, &o->path, table[i].path, table[i].size);
    }
    return wherry_rows_reply(&out);
}
