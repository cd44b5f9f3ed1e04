/* topdeg: the k vertices with most edges (backward, unless told otherwise:
 * those that most others depend on directly).
 *
 * Started on every element.  Each finds the k best of its own shard.  With
 * merge (the default) it hands them to element 0, whose last run replies with
 * the k best of all, best first; without, each replies with its own.  Rows
 * {u32 vertex, u32 count}; of equal counts the lower vertex is better. */
#include "graph.h"
#include "shards.h"
#include "wherry_team.h"

typedef struct {
    uint32_t k, direction, merge;
} params_t;

#define MOST 4000u /* of k; they must fit one message and one part */

typedef struct {
    uint32_t vertex, count;
} row_t;

/* The best so far, the worst of them first: a binary heap. It is what elements send to element 0, too. */
typedef struct {
    uint32_t k, rows;
    row_t row[MOST];
} heap_t;

#define MERGE 1u /* a step: element 0 puts the heaps together */

WHERRY_INLINE int worse(row_t a, row_t b) { return a.count != b.count ? a.count < b.count : a.vertex > b.vertex; }

static void sink(heap_t *h, uint32_t n, row_t r)
{
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && worse(h->row[child + 1], h->row[child]))
            child++;
        if (!worse(h->row[child], r))
            break;
        h->row[i] = h->row[child];
        i = child;
    }
    h->row[i] = r;
}

static void offer(heap_t *h, row_t r)
{
    if (h->rows == h->k) {
        if (worse(h->row[0], r))
            sink(h, h->k, r);
        return;
    }
    uint32_t i = h->rows++;
    for (; i && worse(r, h->row[(i - 1) / 2]); i = (i - 1) / 2)
        h->row[i] = h->row[(i - 1) / 2];
    h->row[i] = r;
}

/* Replies with the heap's rows, best first: the worst of what is left goes last. */
static int32_t reply_sorted(heap_t *h)
{
    static struct {
        uint32_t rows, zero;
        row_t row[MOST];
    } part;
    part.rows = h->rows;
    part.zero = 0;
    for (uint32_t n = h->rows; n; n--) {
        part.row[n - 1] = h->row[0];
        sink(h, n - 1, h->row[n - 1]);
    }
    return wherry_reply(&part, WHERRY_ROWS_HEAD + part.rows * sizeof(row_t));
}

/* Element 0: takes one element's best. */
static int32_t merge(const wherry_team_t *t, heap_t *h)
{
    const heap_t *in = (const heap_t *)t->data;
    if (t->size < offsetof(heap_t, row) || in->k > MOST || in->rows > (t->size - offsetof(heap_t, row)) / sizeof(row_t))
        return WHERRY_ERR_ARGUMENT;
    h->k = in->k;
    for (uint32_t i = 0; i < in->rows; i++)
        offer(h, in->row[i]);
    return t->last ? reply_sorted(h) : WHERRY_OK;
}

static int32_t scan(heap_t *h, const params_t *p, int32_t self)
{
    graph_t g;
    wherry_rows_range_t mine;
    uint64_t held;
    WHERRY_TRY(graph_open(&g, p->direction));
    WHERRY_TRY(shards_held(self, &held));
    if (held > g.rows)
        return WHERRY_ERR_ARGUMENT;
    int ranges = wherry_shard_rows(0, self, &mine) == WHERRY_OK;
    for (uint64_t i = 0; i < held; i++) {
        uint64_t n = g.offsets[i + 1] - g.offsets[i];
        row_t r = {0, n > UINT32_MAX ? UINT32_MAX : (uint32_t)n};
        if (h->rows == h->k && r.count < h->row[0].count)
            continue; /* whichever vertex it is */
        r.vertex = (uint32_t)(ranges ? mine.first + i : (uint64_t)wherry_row(0, self, i));
        offer(h, r);
    }
    return WHERRY_OK;
}

WHERRY_ENTRY(payload, size)
{
    wherry_team_t t;
    heap_t *own = (heap_t *)wherry_team_room();
    const params_t *p = (const params_t *)payload;
    if (size < sizeof *p)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(wherry_team_open(&t, payload, size, sizeof(heap_t), 0));
    if (t.step == MERGE)
        return merge(&t, (heap_t *)t.state);
    if (p->k == 0 || p->k > MOST)
        return WHERRY_ERR_ARGUMENT;
    own->k = p->k;
    WHERRY_TRY(scan(own, p, (int32_t)t.self));
    if (!p->merge)
        return reply_sorted(own);
    return wherry_gather(&t, 0, MERGE, own, offsetof(heap_t, row) + own->rows * (uint32_t)sizeof *own->row);
}
