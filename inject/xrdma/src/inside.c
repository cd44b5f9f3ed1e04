/* inside: how many vertices have all their edges within a set of vertices.
 *
 * Started on every element with the same set.  A set that is too long for one
 * payload goes in several, each a branch of its own at every element; lists
 * says how many.  Each element puts them together in scratch, and the run that
 * has the last one looks at every edge once.  Vertices without edges count:
 * none of theirs leaves the set.
 *
 * Payload: the record below, then the vertices, as text with anything but digits
 * between them, or, with LIST_BINARY in lists, as u32. */
#include "graph.h"
#include "shards.h"
#include "vertices.h"

#define LIST_BINARY (1u << 31)

typedef struct {
    uint32_t direction, lists;
    wherry_str_t vertices;
} params_t;

static int32_t add(uint64_t *set, uint64_t total, uint64_t vertex)
{
    if (vertex >= total)
        return WHERRY_ERR_ARGUMENT;
    wherry_bits_set(set, vertex);
    return WHERRY_OK;
}

static int32_t add_text(uint64_t *set, uint64_t total, const char *text, uint32_t size)
{
    uint32_t at = 0, vertex;
    int32_t more;
    while ((more = vertices_next(text, size, &at, &vertex)) > 0)
        WHERRY_TRY(add(set, total, vertex));
    WHERRY_TRY(more);
    return WHERRY_OK;
}

static int32_t add_binary(uint64_t *set, uint64_t total, const uint32_t *list, uint32_t size)
{
    if (size % 4 || (uintptr_t)list % 4)
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t n = size / 4; n; n--)
        WHERRY_TRY(add(set, total, *list++));
    return WHERRY_OK;
}

static int32_t count(const graph_t *g, const uint64_t *set, uint64_t total, uint64_t rows)
{
    struct {
        uint32_t rows, zero;
        uint64_t inside;
    } part = {1, 0, 0};
    for (uint64_t i = 0; i < rows; i++) {
        const uint32_t *t, *end;
        if (!graph_edges(g, i, &t, &end))
            return WHERRY_ERR_ARGUMENT;
        for (; t < end && *t < total && set[*t >> 6] >> (*t & 63) & 1; t++)
            ;
        part.inside += t == end;
    }
    return wherry_reply(&part, sizeof part);
}

WHERRY_ENTRY(payload, size)
{
    const params_t *p = (const params_t *)payload;
    if (size < sizeof *p)
        return WHERRY_ERR_ARGUMENT;
    const char *list = wherry_text(payload, size, p->vertices);
    uint32_t lists = p->lists & ~LIST_BINARY;
    if (!list || lists == 0)
        return WHERRY_ERR_ARGUMENT;
    graph_t g;
    uint64_t held, total;
    WHERRY_TRY(graph_open(&g, p->direction));
    WHERRY_TRY(shards_held(wherry_self(), &held));
    WHERRY_TRY(shards_total(wherry_elements(), &total));
    if (held > g.rows)
        return WHERRY_ERR_ARGUMENT;
    uint64_t *arrived = (uint64_t *)wherry_scratch(8 + wherry_bits_bytes(total)), *set = arrived + 1;
    if (!arrived)
        return WHERRY_ERR_LIMIT;
    if (p->lists & LIST_BINARY)
        WHERRY_TRY(add_binary(set, total, (const uint32_t *)(const void *)list, p->vertices.size));
    else
        WHERRY_TRY(add_text(set, total, list, p->vertices.size));
    if (++*arrived < lists) {
        static const uint32_t none[2] = {0, 0};
        return wherry_reply(none, sizeof none);
    }
    return count(&g, set, total, held);
}
