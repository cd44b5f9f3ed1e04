/* closure, reach: every vertex that can be reached from a list of vertices.
 *
 * Each element keeps a bitmap of its own visited vertices in scratch.  A run
 * takes a list of vertices of this shard, goes on from those that are new until
 * nothing new is left here, and forks to other elements with lists of the
 * vertices it met there.  It sends no vertex twice.  The search ends when no
 * branch is left; there are no rounds, and nothing passes through the caller.
 * So it tells what is reachable, not how far away: `level` does that.  After
 * MANY runs at an element, its lists that are not full wait for a branch of its
 * own, which comes behind those that have arrived: else each list that comes
 * would lead to a shorter one for every element, and soon nothing else travels.
 *
 * max_depth > 0 keeps to vertices at most that many edges away.  It is exact:
 * a depth is kept per vertex, and one that is met again on a shorter way is
 * gone through again.  It takes a byte instead of a bit per vertex.
 *
 * Payload: the record params_t, then the list.  From a caller it is text,
 * numbers with anything but digits between them.  An element takes those that
 * it holds; so start it on every element.  Elements, and programs, send the
 * record passed_t, and behind it u32 vertices (with max_depth: pairs of vertex
 * and depth).  Which one it is shows in where the list begins.
 *
 * A branch replies with what it visited first: closure, a list of u32; reach
 * (built with COUNTS), one row {u64 reached, u64 edges}.  TRAIL_WANTED ends a list
 * with one number more: how many messages between elements led here, one after
 * the other.
 */
#include "graph.h"
#include "shards.h"

#define TRAIL_WANTED (1u << 31)
#define TRAIL_MASK (TRAIL_WANTED - 1) /* messages that led here: a chain may change elements at each vertex */
#ifdef COUNTS
#define TRAIL_KNOWN TRAIL_MASK /* there is no list to end */
#else
#define TRAIL_KNOWN UINT32_MAX
#endif

#define FAR 255u /* depth of a vertex not met yet; also the limit on max_depth */

/* A list for one element is sent when it has this many bytes; with many
 * elements the lists share BATCHES_BYTES. */
#define BATCH_MOST 32768u
#define BATCH_LEAST 1024u
#define BATCHES_BYTES (4u << 20)
#define MANY 256u

typedef struct {
    uint32_t direction, max_depth;
    wherry_str_t list;
} params_t;

typedef struct {
    params_t params;
    uint32_t trail;
} passed_t;

/* Kept in scratch between runs. */
typedef struct {
    uint32_t runs;  /* up to MANY */
    uint32_t due;   /* a branch will send the lists that wait */
    uint32_t trail; /* of those, the longest */
    uint32_t zero;
} state_t;

typedef struct {
    state_t *state;
    shards_t shards;
    graph_t graph;
    params_t params;
    uint32_t trail;
    uint64_t *visited; /* a bit per row here */
    uint8_t *depth;    /* with max_depth: per row here */
    uint64_t *queued;  /* with max_depth: a bit per row here */
    uint64_t *counted; /* with max_depth: a bit per row here whose edges are counted */
    uint64_t *sent;    /* a bit per vertex of the graph */
    uint8_t *told;     /* with max_depth: depth sent, per vertex of the graph */
    uint32_t *queue;   /* vertices (numbers of the whole graph) to go on from */
    uint32_t *found;   /* vertices visited first by this run; the queue itself without max_depth */
    uint32_t head, tail, news;
    uint32_t *fill; /* bytes in each batch */
    uint8_t *batches;
    uint32_t batch; /* bytes of one */
    uint64_t edges; /* followed: a vertex that is gone through again counts once */
    int32_t status;
} search_t;

static int32_t open_scratch(search_t *s)
{
    int deep = s->params.max_depth != 0;
    uint64_t rows = s->graph.rows, elements = (uint64_t)s->shards.elements;
    uint64_t total;
    WHERRY_TRY(shards_total(s->shards.elements, &total));
    if (total > UINT32_MAX)
        return WHERRY_ERR_ARGUMENT;
    uint64_t head = SHARDS_WORDS(elements) * 8, bits = wherry_bits_bytes(rows);
    uint64_t batch = BATCHES_BYTES / elements;
    s->batch = batch > BATCH_MOST ? BATCH_MOST : batch < BATCH_LEAST ? BATCH_LEAST : (uint32_t)batch & ~7u;
    if (s->batch > total * 8 + 32) /* no list gets longer than that */
        s->batch = (uint32_t)total * 8 + 32;
    uint64_t sent = deep ? total : wherry_bits_bytes(total);
    uint64_t queue = (rows + 1) * 4; /* one more, or a full ring would look empty */
    uint64_t size = head + sizeof(state_t) + bits + wherry_align8(sent) + wherry_align8(queue) + wherry_align8(elements * 4)
                  + elements * s->batch;
    if (deep)
        size += wherry_align8(rows) + 2 * bits + wherry_align8(queue);
    wherry_bump_t b;
    if (!wherry_bump_init(&b, size))
        return WHERRY_ERR_LIMIT;
    WHERRY_TRY(shards_open(&s->shards, (uint64_t *)wherry_bump(&b, head)));
    if (rows < s->shards.held)
        return WHERRY_ERR_ARGUMENT;
    s->state = (state_t *)wherry_bump(&b, sizeof(state_t));
    s->visited = (uint64_t *)wherry_bump(&b, bits);
    s->sent = (uint64_t *)wherry_bump(&b, sent);
    s->told = deep ? (uint8_t *)s->sent : NULL;
    s->queue = (uint32_t *)wherry_bump(&b, queue);
    s->found = s->queue;
    s->fill = (uint32_t *)wherry_bump(&b, elements * 4);
    s->batches = (uint8_t *)wherry_bump(&b, elements * s->batch);
    if (deep) {
        s->depth = (uint8_t *)wherry_bump(&b, rows);
        s->queued = (uint64_t *)wherry_bump(&b, bits);
        s->counted = (uint64_t *)wherry_bump(&b, bits);
        s->found = (uint32_t *)wherry_bump(&b, queue);
    }
    return s->batches ? WHERRY_OK : WHERRY_ERR_LIMIT;
}

/* A depth as scratch holds it: inverted, so that zeroed memory means FAR. */
WHERRY_INLINE uint32_t depth_of(uint8_t stored) { return FAR - stored; }
WHERRY_INLINE uint8_t stored_depth(uint32_t depth) { return (uint8_t)(FAR - depth); }

/* Takes a vertex of this shard that was met at depth. */
static void meet(search_t *s, uint32_t vertex, uint64_t local, uint32_t depth)
{
    if (!s->params.max_depth) {
        if (wherry_bits_set(s->visited, local))
            s->queue[s->tail++] = vertex;
        return;
    }
    if (depth >= depth_of(s->depth[local]))
        return;
    s->depth[local] = stored_depth(depth);
    if (wherry_bits_set(s->visited, local))
        s->found[s->news++] = vertex;
    if (depth < s->params.max_depth && wherry_bits_set(s->queued, local)) {
        /* The ring holds every row once at most, so it never overflows. */
        s->queue[s->tail] = vertex;
        s->tail = s->tail == s->graph.rows ? 0 : s->tail + 1;
    }
}

static int32_t send_batch(search_t *s, int32_t element)
{
    uint8_t *batch = s->batches + (uint64_t)element * s->batch;
    uint32_t size = s->fill[element];
    passed_t *p = (passed_t *)batch;
    s->fill[element] = 0;
    if (size <= sizeof *p)
        return WHERRY_OK;
    p->params = s->params;
    p->params.list.offset = sizeof *p;
    p->params.list.size = size - sizeof *p;
    uint32_t longest = s->trail > s->state->trail ? s->trail : s->state->trail;
    p->trail = longest + ((longest & TRAIL_MASK) < TRAIL_MASK);
    return wherry_fork_wait(0, element, batch, size);
}

/* Notes a vertex of another shard, once (or once per shorter way).  Where shards
 * are no ranges it may turn out to be of this one. */
static void tell(search_t *s, uint32_t vertex, uint32_t depth)
{
    if (vertex >= s->shards.total) {
        s->status = WHERRY_ERR_ARGUMENT;
        return;
    }
    if (s->told) {
        if (depth >= depth_of(s->told[vertex]))
            return;
        s->told[vertex] = stored_depth(depth);
    } else if (!wherry_bits_set(s->sent, vertex)) {
        return;
    }
    uint64_t local;
    int32_t owner = shards_find(&s->shards, vertex, &local);
    if (owner < 0) {
        s->status = owner;
        return;
    }
    if (owner == s->shards.self) {
        meet(s, vertex, local, depth);
        return;
    }
    uint32_t entry = s->told ? 8 : 4, fill = s->fill[owner];
    if (fill == 0)
        fill = sizeof(passed_t);
    uint32_t *at = (uint32_t *)(s->batches + (uint64_t)owner * s->batch + fill);
    at[0] = vertex;
    if (s->told)
        at[1] = depth;
    s->fill[owner] = fill + entry;
    if (s->fill[owner] + entry > s->batch) {
        int32_t st = send_batch(s, owner);
        if (st != WHERRY_OK)
            s->status = st;
    }
}

/* The index here of a vertex that was queued, and its edges; 0 on an error. */
WHERRY_INLINE int edges_of(search_t *s, uint32_t vertex, uint64_t *local, const uint32_t **t, const uint32_t **end)
{
    if (WHERRY_UNLIKELY(!shards_here(&s->shards, vertex, local)))
        s->status = WHERRY_ERR_ARGUMENT;
    else if (WHERRY_UNLIKELY(!graph_edges(&s->graph, *local, t, end)))
        s->status = WHERRY_ERR_ARGUMENT;
    else if (!s->counted || wherry_bits_set(s->counted, *local))
        s->edges += (uint64_t)(*end - *t);
    return s->status == WHERRY_OK;
}

/* Goes through the queue until it is empty; the queue only grows, and is what
 * this run found.  The loop keeps to local variables: stores to the queue could
 * otherwise change what s points to. */
static void expand(search_t *s)
{
    const uint64_t first = s->shards.first, count = s->shards.count;
    uint64_t *visited = s->visited;
    uint32_t *queue = s->queue, tail = s->tail;
    for (uint32_t head = 0; head != tail && s->status == WHERRY_OK; head++) {
        const uint32_t *t, *end;
        uint64_t local;
        if (!edges_of(s, queue[head], &local, &t, &end))
            return;
        for (; t < end; t++) {
            uint32_t vertex = *t;
            uint64_t to = vertex - first;
            if (WHERRY_LIKELY(to < count)) {
                uint64_t word = visited[(size_t)(to >> 6)], bit = 1ull << (to & 63);
                if (!(word & bit)) {
                    visited[(size_t)(to >> 6)] = word | bit;
                    queue[tail++] = vertex;
                }
            } else {
                s->tail = tail;
                tell(s, vertex, 0);
                tail = s->tail;
            }
        }
    }
    s->tail = tail;
}

static void expand_deep(search_t *s)
{
    const uint64_t first = s->shards.first, count = s->shards.count;
    while (s->head != s->tail && s->status == WHERRY_OK) {
        const uint32_t *t, *end;
        uint64_t local;
        uint32_t vertex = s->queue[s->head];
        s->head = s->head == s->graph.rows ? 0 : s->head + 1;
        if (!edges_of(s, vertex, &local, &t, &end))
            return;
        s->queued[local >> 6] &= ~(1ull << (local & 63));
        uint32_t depth = depth_of(s->depth[local]) + 1;
        for (; t < end; t++) {
            uint64_t to = *t - first;
            if (WHERRY_LIKELY(to < count))
                meet(s, *t, to, depth);
            else
                tell(s, *t, depth);
        }
    }
}

/* Takes a vertex from the payload; one of another shard is left to its owner. */
static int32_t seed(search_t *s, uint64_t vertex, uint32_t depth)
{
    uint64_t local;
    int32_t owner = vertex > UINT32_MAX - 1 ? WHERRY_ERR_ARGUMENT : shards_find(&s->shards, vertex, &local);
    if (owner < 0)
        return owner;
    if (owner != s->shards.self)
        return WHERRY_OK;
    if (local >= s->graph.rows)
        return WHERRY_ERR_ARGUMENT;
    meet(s, (uint32_t)vertex, local, depth);
    return WHERRY_OK;
}

static int32_t seeds_text(search_t *s, const char *text, uint32_t size)
{
    for (uint32_t i = 0; i < size;) {
        uint64_t v = 0;
        uint32_t digits = 0;
        for (; i < size && text[i] >= '0' && text[i] <= '9'; i++, digits++) {
            v = v * 10 + (uint64_t)(text[i] - '0');
            if (v > UINT32_MAX)
                return WHERRY_ERR_ARGUMENT;
        }
        if (digits)
            WHERRY_TRY(seed(s, v, 0));
        else if (text[i] == '-') /* surely no separator */
            return WHERRY_ERR_ARGUMENT;
        else
            i++;
    }
    return WHERRY_OK;
}

static int32_t seeds_binary(search_t *s, const uint32_t *list, uint32_t size)
{
    uint32_t entry = s->params.max_depth ? 8 : 4;
    if (size % entry || (uintptr_t)list % 4)
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t n = size / entry; n; n--) {
        uint32_t vertex = *list++, depth = 0;
        if (entry == 8 && (depth = *list++) > s->params.max_depth)
            return WHERRY_ERR_ARGUMENT;
        WHERRY_TRY(seed(s, vertex, depth));
    }
    return WHERRY_OK;
}

/* Sends the lists that are not full, or sees to it that a later run does; due
 * says that this is that run. */
static int32_t send_rest(search_t *s, int due)
{
    state_t *st = s->state;
    if (due)
        st->due = 0;
    else if (st->runs < MANY)
        st->runs++;
    if (due || st->runs < MANY) {
        for (int32_t e = 0; e < s->shards.elements; e++)
            WHERRY_TRY(send_batch(s, e));
        st->trail = 0;
        return WHERRY_OK;
    }
    if (s->trail > st->trail)
        st->trail = s->trail;
    if (st->due)
        return WHERRY_OK;
    for (int32_t e = 0; e < s->shards.elements; e++)
        st->due |= s->fill[e] != 0;
    if (!st->due)
        return WHERRY_OK;
    passed_t p = {s->params, s->trail};
    p.params.list.offset = sizeof p;
    p.params.list.size = 0;
    return wherry_fork_wait(0, s->shards.self, &p, sizeof p);
}

static int32_t answer(search_t *s)
{
    uint32_t news = s->params.max_depth ? s->news : s->tail;
#ifdef COUNTS
    struct {
        uint32_t rows, zero;
        uint64_t reached, edges;
    } part = {1, 0, news, s->edges};
    return wherry_reply(&part, sizeof part);
#else
    if (s->trail & TRAIL_WANTED)
        s->found[news++] = s->trail & TRAIL_MASK; /* it has room for one more than rows */
    const uint32_t most = WHERRY_PART_BYTES / 4, *from = s->found;
    for (; news > most; news -= most, from += most)
        WHERRY_TRY(wherry_reply_part(from, WHERRY_PART_BYTES));
    return wherry_reply(from, news * 4);
#endif
}

WHERRY_ENTRY(payload, size)
{
    search_t s;
    memset(&s, 0, sizeof s);
    if (size < sizeof s.params)
        return WHERRY_ERR_ARGUMENT;
    s.params = *(const params_t *)payload;
    int passed = size >= sizeof(passed_t) && s.params.list.offset == sizeof(passed_t);
    if (passed)
        s.trail = ((const passed_t *)payload)->trail;
    const char *list = wherry_text(payload, size, s.params.list);
    if (!list || s.params.max_depth >= FAR || s.trail & ~TRAIL_KNOWN)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(graph_open(&s.graph, s.params.direction));
    s.shards.self = wherry_self();
    s.shards.elements = wherry_elements();
    WHERRY_TRY(open_scratch(&s));
    if (passed)
        WHERRY_TRY(seeds_binary(&s, (const uint32_t *)(const void *)list, s.params.list.size));
    else
        WHERRY_TRY(seeds_text(&s, list, s.params.list.size));
    if (s.params.max_depth)
        expand_deep(&s);
    else
        expand(&s);
    WHERRY_TRY(s.status);
    WHERRY_TRY(send_rest(&s, passed && s.params.list.size == 0));
    return answer(&s);
}
