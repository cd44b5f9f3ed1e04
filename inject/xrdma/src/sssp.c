/* sssp: the shortest distance from one vertex to every other, in a graph whose
 * edges have weights that are not negative.
 *
 * Started on every element.  In a round each element goes through those of its
 * own vertices that came nearer, the nearest first (Dijkstra's algorithm); then
 * it sends vertices of other elements that came nearer to their owners, each
 * once, as rounds.h says.  A round in which nobody had one to send, or one left
 * to go through, is the last: then each element replies with rows {vertex,
 * distance}.
 *
 * A vertex is gone through again if it comes nearer still by way of another
 * element.  Where most edges lead to other elements that would be most vertices,
 * dozens of times each, and all that follow them.  So an element goes through a
 * number of vertices in a round, its quota (rho-stepping: Dong et al., SPAA
 * 2021).  The quota doubles while few come again, and is halved when many do:
 * where shortest paths mostly stay in an element it soon is as good as none, and
 * the cost is in how often a path changes elements, not in its edges.
 *
 * Distances only become less, so it does not matter in which round a message is
 * taken: one of the round after this one may come early.
 *
 * In scratch, and in messages, a distance is its 64 bits and 1 more: those of
 * numbers that are not negative have the numbers' order, and 0 means none. */
#include "graph.h"
#include "rounds.h"
#include "shards.h"

#define FORWARD_WEIGHTS 6u /* windows: f64 beside each target */
#define NONE UINT32_MAX

#define QUOTA_FIRST 1024u
#define QUOTA_LEAST 64u
#define QUOTA_MOST (1u << 30)

typedef struct {
    uint32_t from, direction;
    double max_distance; /* 0: any */
} params_t;

/* What elements send each other. */
typedef struct {
    params_t params;
    uint32_t round;
    uint32_t messages; /* in the last one of a round's step, how many they were; else 0 */
    uint32_t flags;    /* last: NEARER, of anybody of whom the sender has heard */
    uint32_t step;     /* of the round */
    uint32_t count;    /* entries that follow */
    uint32_t from;     /* who sends it */
} message_t;
#define NEARER 1u /* a vertex, or one is left to go through */
#define ENTRY_WORDS 3u /* vertex, distance: low, high */

#define BATCH_MOST 32768u
#define BATCH_LEAST 1024u
#define BATCHES_BYTES (4u << 20)

#define GONE UINT32_MAX

/* Kept in scratch between runs. */
typedef struct {
    uint32_t started, finished;
    uint32_t round; /* whose messages are awaited */
    uint32_t step;
    uint32_t quota;   /* vertices to go through in a round */
    uint32_t again;   /* how many came into the heap again since the last round */
    uint64_t waiting; /* entries of the heap */
    rounds_tally_t tally[ROUNDS_STEPS][2]; /* by step, and parity of the round */
} state_t;

typedef struct {
    params_t params;
    shards_t shards;
    rounds_t rounds;
    graph_t graph;
    const double *weights;
    state_t *state;
    uint64_t *near;     /* distance per row here */
    uint32_t *heap;     /* rows that came nearer, as a heap by distance, */
    uint32_t *place;    /* and where in it each row is, plus 1; GONE if it was there before */
    uint64_t *told;     /* distance per vertex of the graph that owners were told, or are to be */
    uint64_t *pending;  /* a bit per vertex that they are to be told */
    uint64_t words;     /* of pending */
    uint32_t *messages; /* sent in this round, per element */
    uint8_t *batches;   /* the same */
    uint32_t batch;
    wherry_rows_t out;
} search_t;

typedef struct {
    uint32_t vertex, zero;
    double distance;
} row_t;

static uint8_t part[WHERRY_PART_BYTES];

/* Logs why the call ends, and is the status to end it with. */
static int32_t fail(const char *why)
{
    uint32_t n = 0;
    while (why[n])
        n++;
    wherry_log(why, n);
    return WHERRY_ERR_ARGUMENT;
}

static uint64_t key_of(double distance)
{
    uint64_t bits;
    memcpy(&bits, &distance, sizeof bits);
    return bits + 1;
}

static double distance_of(uint64_t key)
{
    double d;
    key--;
    memcpy(&d, &key, sizeof d);
    return d;
}

static int32_t open_search(search_t *s)
{
    wherry_window_t weights;
    WHERRY_TRY(graph_open(&s->graph, s->params.direction));
    WHERRY_TRY(wherry_window_or_empty(FORWARD_WEIGHTS + s->params.direction, &weights));
    if (weights.size != s->graph.edges * sizeof *s->weights)
        return fail("the graph's edges have no weights: load it with --weights");
    if (!(s->params.max_distance >= 0))
        return fail("max_distance is negative: give 0 for any distance");
    s->weights = (const double *)weights.addr;
    s->shards.self = wherry_self();
    s->shards.elements = wherry_elements();
    rounds_open(&s->rounds, (uint32_t)s->shards.self, (uint32_t)s->shards.elements);
    uint64_t rows = s->graph.rows, elements = (uint64_t)s->shards.elements, total;
    WHERRY_TRY(shards_total(s->shards.elements, &total));
    if (total >= NONE || s->params.from >= total)
        return WHERRY_ERR_ARGUMENT;
    uint64_t batch = BATCHES_BYTES / elements;
    s->batch = batch > BATCH_MOST ? BATCH_MOST : batch < BATCH_LEAST ? BATCH_LEAST : (uint32_t)batch & ~7u;
    s->words = wherry_bits_bytes(total) / 8;
    uint64_t row4 = wherry_align8(rows * 4);
    uint64_t size = SHARDS_WORDS(elements) * 8 + wherry_align8(sizeof(state_t)) + rows * 8 + 2 * row4 + total * 8 + s->words * 8
                  + ROUNDS_BYTES(elements) + wherry_align8(elements * 4) + elements * s->batch;
    wherry_bump_t b;
    if (!wherry_bump_init(&b, size)) {
        fail("the graph has more vertices than there is scratch for (24 bytes for each here, 8 for each elsewhere): load it on more nodes");
        return WHERRY_ERR_LIMIT;
    }
    WHERRY_TRY(shards_open(&s->shards, (uint64_t *)wherry_bump(&b, SHARDS_WORDS(elements) * 8)));
    if (rows < s->shards.held)
        return WHERRY_ERR_ARGUMENT;
    s->state = (state_t *)wherry_bump(&b, sizeof(state_t));
    s->near = (uint64_t *)wherry_bump(&b, rows * 8);
    s->heap = (uint32_t *)wherry_bump(&b, rows * 4);
    s->place = (uint32_t *)wherry_bump(&b, rows * 4);
    s->told = (uint64_t *)wherry_bump(&b, total * 8);
    s->pending = (uint64_t *)wherry_bump(&b, s->words * 8);
    s->rounds.rest = (uint8_t *)wherry_bump(&b, elements);
    s->messages = (uint32_t *)wherry_bump(&b, elements * 4);
    s->batches = (uint8_t *)wherry_bump(&b, elements * s->batch);
    return s->batches ? WHERRY_OK : WHERRY_ERR_LIMIT;
}

/* Puts a row at a place of the heap. */
WHERRY_INLINE void put(search_t *s, uint64_t at, uint32_t row)
{
    s->heap[at] = row;
    s->place[row] = (uint32_t)at + 1;
}

/* Moves a row towards the heap's top, from a place. */
static void rise(search_t *s, uint64_t at, uint32_t row)
{
    for (; at && s->near[s->heap[(at - 1) / 2]] > s->near[row]; at = (at - 1) / 2)
        put(s, at, s->heap[(at - 1) / 2]);
    put(s, at, row);
}

/* Takes the nearest row out of the heap, which has some. */
static uint32_t take(search_t *s)
{
    uint64_t n = --s->state->waiting, at = 0;
    uint32_t top = s->heap[0], row = s->heap[n];
    s->place[top] = GONE;
    if (n == 0)
        return top;
    for (uint64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && s->near[s->heap[child + 1]] < s->near[s->heap[child]])
            child++;
        if (s->near[s->heap[child]] >= s->near[row])
            break;
        put(s, at, s->heap[child]);
    }
    put(s, at, row);
    return top;
}

/* Takes a distance of a row here. */
static void nearer(search_t *s, uint64_t local, uint64_t key)
{
    if (s->near[local] && s->near[local] <= key)
        return;
    s->near[local] = key;
    uint32_t place = s->place[local];
    s->state->again += place == GONE;
    rise(s, place && place != GONE ? place - 1 : s->state->waiting++, (uint32_t)local);
}

/* Takes a distance of any vertex. */
static int32_t meet(search_t *s, uint32_t vertex, uint64_t key)
{
    uint64_t local;
    if (vertex >= s->shards.total)
        return WHERRY_ERR_ARGUMENT;
    if (s->shards.ranges && (local = vertex - s->shards.first) < s->shards.count) {
        nearer(s, local, key);
        return WHERRY_OK;
    }
    if (s->told[vertex] && s->told[vertex] <= key)
        return WHERRY_OK;
    s->told[vertex] = key;
    if (!s->shards.ranges && shards_here(&s->shards, vertex, &local)) { /* asked only if it came nearer */
        nearer(s, local, key);
        return WHERRY_OK;
    }
    wherry_bits_set(s->pending, vertex);
    return WHERRY_OK;
}

static message_t *batch_of(search_t *s, uint32_t element) { return (message_t *)(s->batches + (uint64_t)element * s->batch); }

/* Sends an element what there is for it; last says that it is all of the step, with these flags. */
static int32_t send_batch(search_t *s, uint32_t element, uint32_t step, int last, uint32_t flags)
{
    message_t *m = batch_of(s, element);
    uint32_t count = m->count;
    ++s->messages[element];
    *m = (message_t){.params = s->params, .round = s->state->round, .messages = last ? s->messages[element] : 0, .flags = flags, .step = step,
                     .count = count, .from = s->rounds.self};
    int32_t st = wherry_fork_wait(0, (int32_t)element, m, sizeof *m + count * ENTRY_WORDS * 4);
    m->count = 0;
    if (last)
        s->messages[element] = 0;
    return st;
}

/* Puts into batches what goes out in a step; *some says that there was something. */
static int32_t pack(search_t *s, uint32_t step, int *some)
{
    for (uint64_t i = 0; i < s->words; i++) {
        for (uint64_t left = s->pending[i]; left; left &= left - 1) {
            uint32_t vertex = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(left), in;
            uint64_t local;
            int32_t owner = shards_find(&s->shards, vertex, &local);
            if (owner < 0)
                return owner;
            uint32_t to = rounds_next(&s->rounds, (uint32_t)owner, &in);
            *some = 1;
            if (in != step)
                continue; /* of a step that follows */
            s->pending[i] &= ~(1ull << (vertex & 63));
            message_t *m = batch_of(s, to);
            uint32_t *at = (uint32_t *)(m + 1) + m->count++ * ENTRY_WORDS;
            at[0] = vertex;
            at[1] = (uint32_t)s->told[vertex];
            at[2] = (uint32_t)(s->told[vertex] >> 32);
            if (sizeof *m + (m->count + 1) * ENTRY_WORDS * 4 > s->batch)
                WHERRY_TRY(send_batch(s, to, step, 0, 0));
        }
    }
    return WHERRY_OK;
}

/* Sends what is for a step of this round; flags are of all that was heard of. */
static int32_t send_step(search_t *s, uint32_t step, uint32_t flags)
{
    state_t *st = s->state;
    int some = 0;
    WHERRY_TRY(pack(s, step, &some));
    if (some)
        flags |= NEARER;
    for (uint32_t e = 0; e < s->rounds.elements; e++)
        if (rounds_sends(&s->rounds, step, e))
            WHERRY_TRY(send_batch(s, e, step, 1, flags));
    st->tally[step][st->round & 1].flags |= flags;
    st->step = step;
    return WHERRY_OK;
}

/* Settles the next round's quota, after one in which so many vertices were gone through. */
static void settle_quota(state_t *st, uint32_t through)
{
    if (st->again > through / 4)
        st->quota = st->quota / 2 < QUOTA_LEAST ? QUOTA_LEAST : st->quota / 2;
    else if (through == st->quota && st->again <= through / 8 && st->quota < QUOTA_MOST)
        st->quota *= 2;
    st->again = 0;
}

/* Goes through the nearest of this shard's vertices that came nearer, and sends what came nearer elsewhere. */
static int32_t expand(search_t *s)
{
    double most = s->params.max_distance;
    uint32_t through = 0;
    for (; s->state->waiting && through < s->state->quota; through++) {
        uint32_t local = take(s);
        double d = distance_of(s->near[local]);
        const uint32_t *t, *end;
        if (!graph_edges(&s->graph, local, &t, &end))
            return WHERRY_ERR_ARGUMENT;
        for (const double *w = s->weights + (t - s->graph.targets); t < end; t++, w++) {
            if (!(*w >= 0))
                return fail("an edge has a weight below 0, or none that is a number: shortest paths are of weights from 0 on");
            if (most == 0 || d + *w <= most)
                WHERRY_TRY(meet(s, *t, key_of(d + *w)));
        }
    }
    settle_quota(s->state, through);
    return send_step(s, 0, s->state->waiting ? NEARER : 0);
}

/* Replies with the vertices here that were met. */
static int32_t report(search_t *s)
{
    for (uint64_t i = 0; i < s->shards.held; i++) {
        if (!s->near[i])
            continue;
        row_t *r = (row_t *)wherry_rows_add(&s->out, 0);
        if (!r) {
            if (s->out.status == WHERRY_ERR_LIMIT)
                fail("it reaches more vertices than a node's answer holds: load the graph on more nodes, or give max_distance");
            return s->out.status;
        }
        *r = (row_t){(uint32_t)shards_row(&s->shards, i), 0, distance_of(s->near[i])};
    }
    return wherry_rows_reply(&s->out);
}

/* Goes on step by step for as long as all messages are there. */
static int32_t advance(search_t *s)
{
    state_t *st = s->state;
    for (;;) {
        rounds_tally_t *t = &st->tally[st->step][st->round & 1];
        if (st->finished || !rounds_complete(&s->rounds, t, st->step))
            return wherry_rows_reply(&s->out);
        uint32_t flags = t->flags;
        memset(t, 0, sizeof *t);
        if (st->step + 1 < s->rounds.steps) {
            WHERRY_TRY(send_step(s, st->step + 1, flags));
            continue;
        }
        st->round++;
        st->step = 0;
        if (!(flags & NEARER)) {
            st->finished = 1;
            return report(s);
        }
        WHERRY_TRY(expand(s));
    }
}

static int32_t take_message(search_t *s, const message_t *m, const uint32_t *entry)
{
    state_t *st = s->state;
    if (m->step >= s->rounds.steps || m->round - st->round > 1 || st->finished) /* a sender is in our round, or one ahead */
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t i = 0; i < m->count; i++, entry += ENTRY_WORDS)
        WHERRY_TRY(meet(s, entry[0], entry[1] | (uint64_t)entry[2] << 32));
    rounds_count(&s->rounds, &st->tally[m->step][m->round & 1], m->from, m->messages, m->flags);
    return WHERRY_OK;
}

WHERRY_ENTRY(payload, size)
{
    search_t s;
    memset(&s, 0, sizeof s);
    const message_t *m = (const message_t *)payload;
    if (size != sizeof s.params && size < sizeof *m)
        return WHERRY_ERR_ARGUMENT;
    s.params = m->params;
    wherry_rows_init(&s.out, part, sizeof part, sizeof(row_t));
    WHERRY_TRY(open_search(&s));
    int fresh = !s.state->started;
    if (fresh) { /* the first run of this invocation here: round 0 */
        uint64_t local;
        s.state->started = 1;
        s.state->quota = QUOTA_FIRST;
        if (shards_here(&s.shards, s.params.from, &local))
            nearer(&s, local, key_of(0));
        WHERRY_TRY(expand(&s));
    }
    if (size == sizeof s.params)
        return fresh ? advance(&s) : wherry_rows_reply(&s.out);
    if (m->count > (size - sizeof *m) / 4 / ENTRY_WORDS)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(take_message(&s, m, (const uint32_t *)(m + 1)));
    return advance(&s);
}
