/* path, level: a breadth-first search in exact levels over all shards.
 *
 *     path    one shortest path from one vertex to another
 *     level   every vertex that can be reached, with its distance  (-DLEVELS)
 *
 * Started on every element.  In level n each element goes through its own
 * vertices at distance n, and then sends the vertices that it met elsewhere, as
 * rounds.h says.  An element that has the lists of a level's last step knows that
 * the level is complete, and whether anybody met anything: so all agree on when
 * to stop, without a coordinator and without the caller.  The cost is in levels:
 * closure is cheaper where only reachability counts.
 *
 * No element is ahead of another by more than one level, so counters for two
 * levels suffice.  A list of the level after this one may come before this
 * level is complete; a vertex in it may still turn out to be nearer, and then
 * it is moved.  One that only passes through here is told early, apart from
 * those of this level, which are told in any case.
 *
 * A path ends at the level in which its target was met.  The target's owner
 * then starts a branch that goes back from parent to parent, which each element
 * keeps in scratch, and that branch alone replies with rows: {step, vertex},
 * all in order unless the path has more than TRACE_MOST vertices; then parts
 * are sent ahead, from the path's end.  No path: no rows.
 */
#include "graph.h"
#include "rounds.h"
#include "shards.h"

#define NONE UINT32_MAX
#ifdef LEVELS
typedef struct {
    uint32_t from, direction, max_depth;
} params_t;
#define TARGET(s) NONE
#else
typedef struct {
    uint32_t from, to, direction, max_depth;
} params_t;
#define TARGET(s) ((s)->params.to)
#endif

/* What elements send each other. */
typedef struct {
    params_t params;
    uint32_t kind;
    uint32_t level;    /* LISTED: whose edges were followed; TRACED: distance of vertex */
    uint32_t messages; /* LISTED: in the last one of a level's step, how many they were; else 0 */
    uint32_t flags;    /* LISTED, last: MET, REACHED, by somebody of whom the sender has heard */
    uint32_t step;     /* LISTED: of the level */
    uint32_t vertex;   /* TRACED: the next to add to the path */
    uint32_t count;    /* entries that follow */
    uint32_t from;     /* LISTED: who sends it */
} message_t;
#define LISTED 1u
#define TRACED 2u
#define MET 1u     /* something in this level */
#define REACHED 2u /* the target */

#ifdef LEVELS
#define ENTRY_WORDS 1u /* vertex */
#else
#define ENTRY_WORDS 2u /* vertex, parent */
#endif

#define BATCH_MOST 32768u
#define BATCH_LEAST 1024u
#define BATCHES_BYTES (4u << 20)
#define TRACE_MOST 4000u /* vertices that a trace carries; below WHERRY_PART_BYTES with 8 bytes each */

/* Kept in scratch between runs. */
typedef struct {
    uint32_t started, finished;
    uint32_t level; /* the level whose lists are awaited */
    uint32_t frontier[2];
    uint32_t step, earlies; /* of the level; whether anything was told early */
    uint32_t idle;          /* this element has said so, and may be awaited no more */
    rounds_tally_t tally[ROUNDS_STEPS][2]; /* by step, and parity of the level */
} state_t;

typedef struct {
    params_t params;
    shards_t shards;
    rounds_t rounds;
    graph_t graph;
    state_t *state;
    uint32_t *near;        /* distance + 1 per row here; 0: not met */
    uint32_t *parent;      /* vertex it was met from, per row here */
    uint32_t *frontier[2]; /* vertices at even and odd distance, still to go through */
    uint64_t *sent;        /* a bit per vertex of the graph */
    uint64_t *early;       /* the same: sent as of the level after this one */
    uint64_t words;        /* of each */
    uint32_t *messages;    /* sent in a level, by its parity and per element */
    uint8_t *batches;      /* the same */
    uint32_t batch;
    uint32_t flags; /* of this level, here */
    int32_t status;
    wherry_rows_t out;
} search_t;

static uint8_t part[WHERRY_PART_BYTES];

static int32_t open_search(search_t *s)
{
    WHERRY_TRY(graph_open(&s->graph, s->params.direction));
    s->shards.self = wherry_self();
    s->shards.elements = wherry_elements();
    rounds_open(&s->rounds, (uint32_t)s->shards.self, (uint32_t)s->shards.elements);
    uint64_t rows = s->graph.rows, elements = (uint64_t)s->shards.elements;
    uint64_t total;
    WHERRY_TRY(shards_total(s->shards.elements, &total));
    if (total >= NONE || s->params.from >= total || (TARGET(s) != NONE && TARGET(s) >= total))
        return WHERRY_ERR_ARGUMENT;
    uint64_t batch = BATCHES_BYTES / (2 * elements);
    s->batch = batch > BATCH_MOST ? BATCH_MOST : batch < BATCH_LEAST ? BATCH_LEAST : (uint32_t)batch & ~7u;
    uint64_t longest = wherry_align8(total * 8 + sizeof(message_t) + 8);
    if (s->batch > longest)
        s->batch = (uint32_t)longest;
    uint64_t row4 = wherry_align8(rows * 4);
    uint64_t size = SHARDS_WORDS(elements) * 8 + wherry_align8(sizeof(state_t)) + 4 * row4
                  + 2 * wherry_bits_bytes(total) + ROUNDS_BYTES(elements) + wherry_align8(2 * elements * 4) + 2 * elements * s->batch;
    wherry_bump_t b;
    if (!wherry_bump_init(&b, size))
        return WHERRY_ERR_LIMIT;
    WHERRY_TRY(shards_open(&s->shards, (uint64_t *)wherry_bump(&b, SHARDS_WORDS(elements) * 8)));
    if (rows < s->shards.held)
        return WHERRY_ERR_ARGUMENT;
    s->state = (state_t *)wherry_bump(&b, sizeof(state_t));
    s->near = (uint32_t *)wherry_bump(&b, rows * 4);
    s->parent = (uint32_t *)wherry_bump(&b, rows * 4);
    s->frontier[0] = (uint32_t *)wherry_bump(&b, rows * 4);
    s->frontier[1] = (uint32_t *)wherry_bump(&b, rows * 4);
    s->words = wherry_bits_bytes(total) / 8;
    s->sent = (uint64_t *)wherry_bump(&b, s->words * 8);
    s->early = (uint64_t *)wherry_bump(&b, s->words * 8);
    s->rounds.rest = (uint8_t *)wherry_bump(&b, elements);
    s->messages = (uint32_t *)wherry_bump(&b, 2 * elements * 4);
    s->batches = (uint8_t *)wherry_bump(&b, 2 * elements * s->batch);
    return s->batches ? WHERRY_OK : WHERRY_ERR_LIMIT;
}

/* Takes a vertex of this shard that was met at a distance. */
WHERRY_INLINE void meet(search_t *s, uint32_t vertex, uint64_t local, uint32_t distance, uint32_t parent)
{
    uint32_t now = s->near[local];
    if (now && now - 1 <= distance)
        return;
    s->near[local] = distance + 1;
    s->parent[local] = parent;
    s->frontier[distance & 1][s->state->frontier[distance & 1]++] = vertex;
    s->flags |= MET;
}

/* Where what goes to an element about a level lies. */
static uint64_t place_of(const search_t *s, uint32_t element, uint32_t level)
{
    return (level & 1) * s->rounds.elements + element;
}

static message_t *batch_of(search_t *s, uint32_t element, uint32_t level)
{
    return (message_t *)(s->batches + place_of(s, element, level) * s->batch);
}

/* Sends an element what there is for it; last says that it is all of that level's step, with these flags. */
static int32_t send_batch(search_t *s, uint32_t element, uint32_t level, uint32_t step, int last, uint32_t flags)
{
    message_t *m = batch_of(s, element, level);
    uint32_t count = m->count, *messages = &s->messages[place_of(s, element, level)];
    ++*messages;
    m->params = s->params;
    m->kind = LISTED;
    m->level = level;
    m->messages = last ? *messages : 0;
    m->flags = flags;
    m->step = step;
    m->vertex = 0;
    m->from = s->rounds.self;
    int32_t st = wherry_fork_wait(0, (int32_t)element, m, sizeof *m + count * ENTRY_WORDS * 4);
    m->count = 0;
    if (last)
        *messages = 0;
    return st;
}

/* Notes a vertex of another shard that was met in a level, once: later levels
 * are no nearer.  Where shards are no ranges it may turn out to be of this one. */
static void tell(search_t *s, uint32_t vertex, uint32_t parent, uint32_t level)
{
    uint64_t local;
    uint32_t step;
    if (vertex >= s->shards.total) {
        s->status = WHERRY_ERR_ARGUMENT;
        return;
    }
    if (level == s->state->level) {
        if (!wherry_bits_set(s->sent, vertex))
            return;
    } else {
        if (s->sent[vertex >> 6] >> (vertex & 63) & 1 || !wherry_bits_set(s->early, vertex))
            return;
        s->state->earlies = 1;
    }
    int32_t owner = shards_find(&s->shards, vertex, &local);
    if (owner < 0) {
        s->status = owner;
        return;
    }
    if (owner == s->shards.self) {
        meet(s, vertex, local, level + 1, parent);
        return;
    }
    uint32_t to = rounds_next(&s->rounds, (uint32_t)owner, &step);
    message_t *m = batch_of(s, to, level);
    uint32_t *at = (uint32_t *)(m + 1) + m->count++ * ENTRY_WORDS;
    at[0] = vertex;
    if (ENTRY_WORDS > 1)
        at[1] = parent;
    s->flags |= MET;
    if (sizeof *m + (m->count + 1) * ENTRY_WORDS * 4 > s->batch) {
        int32_t st = send_batch(s, to, level, step, 0, 0);
        if (st != WHERRY_OK)
            s->status = st;
    }
}

/* Sends what is left of a step of this level; flags are of all that was heard of. */
static int32_t send_step(search_t *s, uint32_t step, uint32_t flags)
{
    state_t *st = s->state;
    uint32_t level = st->level;
    if (step == 0)
        st->idle = rounds_member(&s->rounds) && st->frontier[~level & 1] == 0;
    for (uint32_t e = 0; e < s->rounds.elements; e++) {
        if (!rounds_sends(&s->rounds, step, e))
            continue;
        int something = batch_of(s, e, level)->count || s->messages[place_of(s, e, level)];
        if (!rounds_spares(&s->rounds, step, e, something))
            WHERRY_TRY(send_batch(s, e, level, step, 1, flags | (st->idle ? ROUNDS_IDLE : 0)));
    }
    st->tally[step][level & 1].flags |= flags;
    st->step = step;
    return WHERRY_OK;
}

#ifdef LEVELS
typedef struct {
    uint32_t vertex, distance;
} row_t;

static int32_t report(search_t *s, uint32_t vertex, uint32_t distance)
{
    row_t *r = (row_t *)wherry_rows_add(&s->out, 0);
    if (!r)
        return s->out.status;
    r->vertex = vertex;
    r->distance = distance;
    return WHERRY_OK;
}
#endif

/* Goes through this shard's vertices of the level and sends what it met. */
static int32_t expand(search_t *s)
{
    uint32_t level = s->state->level, *list = s->frontier[level & 1], n = s->state->frontier[level & 1];
    int follow = s->params.max_depth == 0 || level < s->params.max_depth;
    s->flags = 0;
    s->state->frontier[level & 1] = 0;
    for (uint32_t i = 0; i < n && s->status == WHERRY_OK; i++) {
        uint32_t vertex = list[i];
        uint64_t local;
        const uint32_t *t, *end;
        if (!shards_here(&s->shards, vertex, &local))
            return WHERRY_ERR_ARGUMENT;
        if (s->near[local] != level + 1) /* it was nearer, and has been gone through */
            continue;
#ifdef LEVELS
        WHERRY_TRY(report(s, vertex, level));
#endif
        if (!follow)
            continue;
        if (!graph_edges(&s->graph, local, &t, &end))
            return WHERRY_ERR_ARGUMENT;
        for (; t < end; t++) {
            uint64_t to = *t - s->shards.first;
            if (*t == TARGET(s))
                s->flags |= REACHED;
            if (to < s->shards.count)
                meet(s, *t, to, level + 1, vertex);
            else
                tell(s, *t, vertex, level);
        }
    }
    WHERRY_TRY(s->status);
    return send_step(s, 0, s->flags);
}

static int32_t finish(search_t *s) { return wherry_rows_reply(&s->out); }

#ifndef LEVELS
typedef struct {
    uint32_t step, vertex;
} row_t;

/* Rows for the vertices of a trace, nearest first. */
static int32_t put_trace(search_t *s, const uint32_t *list, uint32_t count, uint32_t nearest)
{
    for (uint32_t i = 0; i < count; i++) {
        row_t *r = (row_t *)wherry_rows_add(&s->out, 0);
        if (!r)
            return s->out.status;
        r->step = nearest + i;
        r->vertex = list[count - 1 - i];
    }
    return WHERRY_OK;
}

/* Follows parents for as long as they lie here. */
static int32_t trace(search_t *s, uint32_t vertex, uint32_t distance, const uint32_t *list, uint32_t count)
{
    static uint32_t buffer[sizeof(message_t) / 4 + TRACE_MOST];
    message_t *m = (message_t *)buffer;
    uint32_t *trail = buffer + sizeof *m / 4;
    if (count > TRACE_MOST)
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        trail[i] = list[i];
    for (;;) {
        uint64_t local;
        if (!shards_here(&s->shards, vertex, &local)) {
            int32_t owner = shards_find(&s->shards, vertex, &local);
            if (owner < 0)
                return owner;
            *m = (message_t){.params = s->params, .kind = TRACED, .level = distance, .vertex = vertex, .count = count};
            return wherry_forward(0, owner, m, sizeof *m + count * 4);
        }
        if (s->near[local] != distance + 1)
            return WHERRY_ERR_ARGUMENT;
        if (count == TRACE_MOST) {
            WHERRY_TRY(put_trace(s, trail, count, distance + 1));
            WHERRY_TRY(wherry_reply_part(part, wherry_rows_seal(&s->out)));
            count = 0;
        }
        trail[count++] = vertex;
        if (distance == 0)
            break;
        vertex = s->parent[local];
        distance--;
    }
    WHERRY_TRY(put_trace(s, trail, count, 0));
    return finish(s);
}
#endif

/* The next level begins: what was told early is told. */
static void next_level(search_t *s)
{
    s->state->level++;
    s->state->step = 0;
    if (!s->state->earlies)
        return;
    s->state->earlies = 0;
    for (uint64_t i = 0; i < s->words; i++) {
        s->sent[i] |= s->early[i];
        s->early[i] = 0;
    }
}

/* Goes on step by step for as long as all lists are there. */
static int32_t advance(search_t *s)
{
    state_t *st = s->state;
    for (;;) {
        rounds_tally_t *t = &st->tally[st->step][st->level & 1];
        if (st->finished || !rounds_complete(&s->rounds, t, st->step))
            return finish(s);
        uint32_t flags = t->flags;
        memset(t, 0, sizeof *t);
        if (st->step + 1 < s->rounds.steps) {
            WHERRY_TRY(send_step(s, st->step + 1, flags));
            continue;
        }
        next_level(s);
#ifndef LEVELS
        if (flags & REACHED) {
            st->finished = 1;
            uint64_t local;
            if (shards_here(&s->shards, s->params.to, &local))
                return trace(s, s->params.to, st->level, NULL, 0);
            return finish(s);
        }
#endif
        if (!(flags & MET)) {
            st->finished = 1;
            return finish(s);
        }
        WHERRY_TRY(expand(s));
    }
}

/* The first run of this invocation here: level 0. */
static int32_t begin(search_t *s)
{
    s->state->started = 1;
    uint64_t local;
    if (shards_here(&s->shards, s->params.from, &local))
        meet(s, s->params.from, local, 0, s->params.from);
    return expand(s);
}

static int32_t take_list(search_t *s, const message_t *m, const uint32_t *entry)
{
    state_t *st = s->state;
    if (m->step >= s->rounds.steps)
        return WHERRY_ERR_ARGUMENT;
    if (st->idle && m->step == 2) { /* the others may have gone on without us */
        st->level = m->level;
        st->idle = 0;
        memset(st->tally, 0, sizeof st->tally);
    }
    if (m->level - st->level > 1) /* a sender is in our level, or one ahead */
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t i = 0; i < m->count && s->status == WHERRY_OK; i++, entry += ENTRY_WORDS) {
        uint64_t local;
        if (shards_here(&s->shards, entry[0], &local))
            meet(s, entry[0], local, m->level + 1, entry[ENTRY_WORDS - 1]);
        else if (m->step + 1 < s->rounds.steps)
            tell(s, entry[0], entry[ENTRY_WORDS - 1], m->level);
        else
            return WHERRY_ERR_ARGUMENT;
    }
    rounds_count(&s->rounds, &st->tally[m->step][m->level & 1], m->from, m->messages, m->flags);
    return s->status;
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
#ifndef LEVELS
    if (s.params.to == s.params.from) { /* there is nothing to search */
        uint64_t local;
        if (shards_here(&s.shards, s.params.to, &local))
            WHERRY_TRY(put_trace(&s, &s.params.to, 1, 0));
        return finish(&s);
    }
#endif
    int fresh = !s.state->started;
    if (fresh)
        WHERRY_TRY(begin(&s));
    if (size == sizeof s.params)
        return fresh ? advance(&s) : finish(&s);
    uint32_t words = m->kind == LISTED ? ENTRY_WORDS : 1;
    if (m->count > (size - sizeof *m) / 4 / words)
        return WHERRY_ERR_ARGUMENT;
#ifndef LEVELS
    if (m->kind == TRACED)
        return trace(&s, m->vertex, m->level, (const uint32_t *)(m + 1), m->count);
#endif
    if (m->kind != LISTED)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(take_list(&s, m, (const uint32_t *)(m + 1)));
    return advance(&s);
}
