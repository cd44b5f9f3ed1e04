/* degrees: how many edges each vertex has.
 *
 * Started on every element; each replies with a list of u32, one for each of
 * its vertices in their order, in parts that follow one another. */
#include "graph.h"

typedef struct {
    uint32_t direction;
} params_t;

WHERRY_ENTRY(payload, size)
{
    static uint32_t part[WHERRY_PART_BYTES / 4];
    const params_t *p = (const params_t *)payload;
    graph_t g;
    wherry_rows_range_t mine;
    if (size < sizeof *p)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(graph_open(&g, p->direction));
    WHERRY_TRY(wherry_shard_rows(wherry_self(), &mine));
    if (mine.count > g.rows)
        return WHERRY_ERR_ARGUMENT;
    uint32_t n = 0;
    for (uint64_t i = 0; i < mine.count; i++) {
        if (n == WHERRY_PART_BYTES / 4) {
            WHERRY_TRY(wherry_reply_part(part, WHERRY_PART_BYTES));
            n = 0;
        }
        uint64_t edges = g.offsets[i + 1] - g.offsets[i];
        part[n++] = edges > UINT32_MAX ? UINT32_MAX : (uint32_t)edges;
    }
    return wherry_reply(part, n * 4);
}
