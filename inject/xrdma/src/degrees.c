/* degrees: how many edges each vertex has.
 *
 * Started on every element; each replies with a list of {u32 vertex, u32 edges},
 * one for each of its vertices in their order, in parts that follow one another. */
#include "graph.h"
#include "shards.h"

typedef struct {
    uint32_t direction;
} params_t;

typedef struct {
    uint32_t vertex, edges;
} row_t;

#define PART_ROWS (WHERRY_PART_BYTES / sizeof(row_t))

WHERRY_ENTRY(payload, size)
{
    static row_t part[PART_ROWS];
    const params_t *p = (const params_t *)payload;
    graph_t g;
    wherry_rows_range_t mine;
    uint64_t held;
    int32_t self = wherry_self();
    if (size < sizeof *p)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(graph_open(&g, p->direction));
    WHERRY_TRY(shards_held(self, &held));
    if (held > g.rows)
        return WHERRY_ERR_ARGUMENT;
    int ranges = wherry_shard_rows(0, self, &mine) == WHERRY_OK;
    uint32_t n = 0;
    for (uint64_t i = 0; i < held; i++) {
        if (n == PART_ROWS) {
            WHERRY_TRY(wherry_reply_part(part, sizeof part));
            n = 0;
        }
        uint64_t vertex = ranges ? mine.first + i : (uint64_t)wherry_row(0, self, i);
        uint64_t edges = g.offsets[i + 1] - g.offsets[i];
        part[n++] = (row_t){(uint32_t)vertex, edges > UINT32_MAX ? UINT32_MAX : (uint32_t)edges};
    }
    return wherry_reply(part, n * (uint32_t)sizeof *part);
}
