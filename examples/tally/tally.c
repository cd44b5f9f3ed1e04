/* tally: how many requests for each path ended with at least a given status.
 *
 * It runs on every node that holds rows, at the same time; each answers with
 * its own counts, and the manifest (tally.json) says how those are merged:
 * rows that agree in path become one, with the sum of n. */
#include <stddef.h>

#include "wherry.h"

/* A row as `wherry mem stat --c` prints it. */
struct row {
    int64_t time;
    wherry_str_t host, path;
    uint16_t status;
    uint32_t bytes;
};

struct out {
    wherry_str_t path;
    uint64_t n;
};

#define SLOTS 4096u

static struct {
    const char *path;
    uint32_t size;
    uint64_t n;
} table[SLOTS];

static uint8_t part[WHERRY_PART_BYTES];

WHERRY_ENTRY(payload, size)
{
    if (size < 2)
        return WHERRY_ERR_ARGUMENT;
    uint16_t least = *(const uint16_t *)payload; /* the parameters, as tally.json has them */
    wherry_window_t rows, text;
    WHERRY_TRY(wherry_window_or_empty(0, &rows)); /* the records; a node may have none */
    WHERRY_TRY(wherry_window_or_empty(1, &text)); /* their text */
    const struct row *row = (const struct row *)rows.addr, *end = row + rows.size / sizeof *row;
    memset(table, 0, sizeof table); /* another run may have left its counts */
    uint32_t used = 0;
    for (; row < end; row++) {
        if (row->status < least)
            continue;
        const char *path = (const char *)text.addr + row->path.offset;
        uint32_t h = 2166136261u;
        for (uint32_t i = 0; i < row->path.size; i++)
            h = (h ^ (uint8_t)path[i]) * 16777619u;
        uint32_t at = h % SLOTS;
        while (table[at].n && (table[at].size != row->path.size || memcmp(table[at].path, path, row->path.size)))
            at = (at + 1) % SLOTS;
        if (!table[at].n++) {
            if (++used == SLOTS)
                return WHERRY_ERR_LIMIT;
            table[at].path = path;
            table[at].size = row->path.size;
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
