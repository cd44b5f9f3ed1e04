/* graph.h: this element's shard of a graph, as its windows hold it.
 *
 *     window 0   u64 offsets[rows + 1]   edges forward: row i has
 *     window 1   u32 targets[]           targets[offsets[i] .. offsets[i + 1])
 *     window 2   u64 offsets[rows + 1]   edges backward, the same way
 *     window 3   u32 targets[]
 *
 * Targets are vertex numbers of the whole graph.  Offsets count from the
 * shard's own first edge: offsets[0] is subtracted, whatever it is. */
#ifndef GRAPH_H
#define GRAPH_H

#include "wherry.h"

#define FORWARD 0u
#define BACKWARD 1u

typedef struct {
    const uint64_t *offsets;
    const uint32_t *targets;
    uint64_t rows;  /* vertices in this shard */
    uint64_t edges; /* targets in this shard */
} graph_t;

WHERRY_HELPER int32_t graph_open(graph_t *g, uint32_t direction)
{
    wherry_window_t offsets, targets;
    if (direction > BACKWARD)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(wherry_window_or_empty(2 * direction, &offsets));
    WHERRY_TRY(wherry_window_or_empty(2 * direction + 1, &targets));
    g->offsets = (const uint64_t *)offsets.addr;
    g->targets = (const uint32_t *)targets.addr;
    g->rows = offsets.size / sizeof *g->offsets;
    if (g->rows)
        g->rows--;
    g->edges = targets.size / sizeof *g->targets;
    return WHERRY_OK;
}

/* A vertex's edges; 0 if the offsets are broken. */
WHERRY_INLINE int graph_edges(const graph_t *g, uint64_t row, const uint32_t **from, const uint32_t **to)
{
    uint64_t a = g->offsets[row] - g->offsets[0], b = g->offsets[row + 1] - g->offsets[0];
    if (WHERRY_UNLIKELY(a > b || b > g->edges))
        return 0;
    *from = g->targets + a;
    *to = g->targets + b;
    return 1;
}

#endif
