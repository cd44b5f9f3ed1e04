/* dependents: how many vertices can reach each of up to 64 vertices, these
 * included (with direction 0: how many each of them can reach).
 *
 * A word per vertex has one bit for each of the 64, and words travel along the
 * edges: so all are followed at once, and an edge that many of them share is
 * looked at about once.  In a round each element goes on until nothing changes
 * here any more, then sends lists of the vertices elsewhere whose words have
 * grown, as rounds.h says.  What passes through an element on its way is told by
 * it like its own: bits that it has sent already go no further.  A round in
 * which nobody had anything to list is the last.
 *
 * Started on every element, with the same payload.  A list may come before that:
 * it is taken, and waits.  The last run at each element replies with rows
 * {vertex, rounds, reached}, where reached counts vertices of this element. */
#include "graph.h"
#include "rounds.h"
#include "shards.h"
#include "vertices.h"

#define MOST 64u /* vertices: bits of a word */
#define LIST_BYTES 32768u
#define LISTED (1u << 31) /* in direction: a list from another element */

typedef struct {
    uint32_t direction;
    wherry_str_t vertices;
} params_t;

typedef struct {
    uint32_t vertex, low, high; /* low and high half of its word */
} entry_t;

typedef struct {
    uint32_t direction; /* LISTED and the direction */
    uint32_t round;
    uint32_t messages; /* in the last one of a step, how many they were; else 0 */
    uint32_t step;     /* of the round */
    uint32_t from;     /* who sends it */
    uint32_t flags;    /* last: GROWN, somebody whom the sender has heard of listed something */
    uint32_t count;    /* entries that follow */
} list_t;

#define LIST_ENTRIES ((LIST_BYTES - sizeof(list_t)) / sizeof(entry_t))

#define GROWN 1u

/* Kept in scratch between runs. */
typedef struct {
    uint32_t started, finished;
    uint32_t round, step; /* whose lists are awaited */
    uint32_t idle;        /* this element has said so, and may be awaited no more */
    uint32_t tail;  /* vertices in the queue: it is empty between rounds but for what lists brought */
    uint32_t vertices;
    uint32_t vertex[MOST];
    rounds_tally_t tally[ROUNDS_STEPS][2]; /* by step, and parity of the round */
} state_t;

typedef struct {
    uint32_t direction;
    shards_t shards;
    rounds_t rounds;
    graph_t graph;
    state_t *state;
    uint64_t *word;    /* per vertex of the graph: here what reached it, elsewhere what was sent */
    uint64_t *waiting; /* a bit per vertex of the graph: in the queue, or in a list to be sent */
    uint32_t *queue;   /* ring of vertices here whose words have grown */
    uint32_t *list;    /* vertices elsewhere to be sent: those of element e where start says */
    uint32_t *listed;  /* how many, per element */
    uint32_t head;
} spread_t;

static int32_t open_spread(spread_t *s)
{
    WHERRY_TRY(graph_open(&s->graph, s->direction));
    s->shards.self = wherry_self();
    s->shards.elements = wherry_elements();
    rounds_open(&s->rounds, (uint32_t)s->shards.self, (uint32_t)s->shards.elements);
    uint64_t rows = s->graph.rows, elements = (uint64_t)s->shards.elements;
    uint64_t total;
    WHERRY_TRY(shards_total(s->shards.elements, &total));
    if (total >= UINT32_MAX)
        return WHERRY_ERR_ARGUMENT;
    uint64_t queue = wherry_align8((rows + 1) * 4);
    uint64_t size = SHARDS_WORDS(elements) * 8 + wherry_align8(sizeof(state_t)) + total * 8 + wherry_bits_bytes(total) + queue
                  + wherry_align8(total * 4) + wherry_align8(elements * 4) + ROUNDS_BYTES(elements);
    wherry_bump_t b;
    if (!wherry_bump_init(&b, size))
        return WHERRY_ERR_LIMIT;
    WHERRY_TRY(shards_open(&s->shards, (uint64_t *)wherry_bump(&b, SHARDS_WORDS(elements) * 8)));
    if (rows < s->shards.held)
        return WHERRY_ERR_ARGUMENT;
    s->state = (state_t *)wherry_bump(&b, sizeof(state_t));
    s->word = (uint64_t *)wherry_bump(&b, total * 8);
    s->waiting = (uint64_t *)wherry_bump(&b, wherry_bits_bytes(total));
    s->queue = (uint32_t *)wherry_bump(&b, queue);
    s->list = (uint32_t *)wherry_bump(&b, total * 4);
    s->listed = (uint32_t *)wherry_bump(&b, elements * 4);
    s->rounds.rest = (uint8_t *)wherry_bump(&b, elements);
    return s->rounds.rest ? WHERRY_OK : WHERRY_ERR_LIMIT;
}

/* Puts a vertex into the queue; every row is in it once at most. */
WHERRY_INLINE void queue(spread_t *s, uint32_t vertex)
{
    s->queue[s->state->tail] = vertex;
    s->state->tail = s->state->tail == s->graph.rows ? 0 : s->state->tail + 1;
}

/* Adds bits to the word of a vertex of this shard. */
WHERRY_INLINE void grow(spread_t *s, uint32_t vertex, uint64_t bits)
{
    if (!(bits & ~s->word[vertex]))
        return;
    s->word[vertex] |= bits;
    if (wherry_bits_set(s->waiting, vertex))
        queue(s, vertex);
}

/* Adds bits to what is to be sent about a vertex of another shard; where shards
 * are no ranges it may turn out to be of this one. */
WHERRY_INLINE int32_t tell(spread_t *s, uint32_t vertex, uint64_t bits)
{
    uint64_t local;
    if (WHERRY_UNLIKELY(vertex >= s->shards.total))
        return WHERRY_ERR_ARGUMENT;
    if (!(bits & ~s->word[vertex]))
        return WHERRY_OK;
    s->word[vertex] |= bits;
    if (wherry_bits_set(s->waiting, vertex)) {
        int32_t owner = shards_find(&s->shards, vertex, &local);
        if (owner < 0)
            return owner;
        if (owner == s->shards.self)
            queue(s, vertex);
        else
            s->list[s->shards.start[owner] + s->listed[owner]++] = vertex;
    }
    return WHERRY_OK;
}

/* Follows the edges of what has grown until nothing grows here any more. */
static int32_t settle(spread_t *s)
{
    while (s->head != s->state->tail) {
        const uint32_t *t, *end;
        uint64_t local;
        uint32_t vertex = s->queue[s->head];
        s->head = s->head == s->graph.rows ? 0 : s->head + 1;
        s->waiting[vertex >> 6] &= ~(1ull << (vertex & 63));
        if (!shards_here(&s->shards, vertex, &local) || !graph_edges(&s->graph, local, &t, &end))
            return WHERRY_ERR_ARGUMENT;
        uint64_t bits = s->word[vertex];
        for (; t < end; t++) {
            if (*t - s->shards.first < s->shards.count)
                grow(s, *t, bits);
            else
                WHERRY_TRY(tell(s, *t, bits));
        }
    }
    s->head = s->state->tail = 0;
    return WHERRY_OK;
}

/* Sends an element what is listed for those that it stands for in a step. */
static int32_t send_list(spread_t *s, uint32_t to, uint32_t at, uint32_t flags)
{
    static uint32_t buffer[LIST_BYTES / 4];
    list_t *m = (list_t *)buffer;
    entry_t *entry = (entry_t *)(m + 1);
    uint32_t step, n = 0, messages = 0;
    for (uint32_t e = 0; e < s->rounds.elements; e++) {
        if (s->listed[e] == 0 || rounds_next(&s->rounds, e, &step) != to)
            continue;
        const uint32_t *list = s->list + s->shards.start[e];
        uint32_t left = s->listed[e];
        for (s->listed[e] = 0; left; left--, list++) {
            if (n == LIST_ENTRIES) {
                *m = (list_t){s->direction | LISTED, s->state->round, 0, at, s->rounds.self, flags, n};
                WHERRY_TRY(wherry_fork_wait(0, (int32_t)to, m, sizeof *m + n * (uint32_t)sizeof *entry));
                messages++;
                n = 0;
            }
            uint64_t word = s->word[*list];
            s->waiting[*list >> 6] &= ~(1ull << (*list & 63));
            entry[n++] = (entry_t){*list, (uint32_t)word, (uint32_t)(word >> 32)};
        }
    }
    *m = (list_t){s->direction | LISTED, s->state->round, messages + 1, at, s->rounds.self, flags, n};
    return wherry_fork_wait(0, (int32_t)to, m, sizeof *m + n * (uint32_t)sizeof *entry);
}

/* Sends the lists of a step; grown says that somebody listed something. The last round's reach everybody: all answer then. */
static int32_t send_lists(spread_t *s, uint32_t step, uint32_t grown)
{
    state_t *st = s->state;
    uint32_t flags = grown ? GROWN : 0;
    if (step == 0)
        st->idle = rounds_member(&s->rounds); /* the queue is empty */
    for (uint32_t e = 0; e < s->rounds.elements; e++)
        if (rounds_sends(&s->rounds, step, e) && !rounds_spares(&s->rounds, step, e, s->listed[e] || !grown))
            WHERRY_TRY(send_list(s, e, step, flags | (st->idle ? ROUNDS_IDLE : 0)));
    st->tally[step][st->round & 1].flags |= flags;
    st->step = step;
    return WHERRY_OK;
}

/* Begins a round of this element. */
static int32_t play(spread_t *s)
{
    uint32_t grown = 0;
    WHERRY_TRY(settle(s));
    for (uint32_t e = 0; e < s->rounds.elements; e++)
        grown |= s->listed[e] != 0;
    return send_lists(s, 0, grown);
}

/* Counts the bits of all words here: plane[i] holds bit i of 64 counters. */
static int32_t answer(spread_t *s)
{
    static struct {
        uint32_t rows, zero;
        struct {
            uint32_t vertex, rounds;
            uint64_t reached;
        } row[MOST];
    } part;
    uint64_t plane[33] = {0};
    for (uint64_t i = 0; i < s->shards.held; i++) {
        uint64_t vertex = shards_row(&s->shards, i);
        if (vertex >= s->shards.total)
            return WHERRY_ERR_ARGUMENT;
        uint64_t carry = s->word[vertex];
        for (uint32_t p = 0; carry; p++) {
            uint64_t both = plane[p] & carry;
            plane[p] ^= carry;
            carry = both;
        }
    }
    part.rows = s->state->vertices;
    part.zero = 0;
    for (uint32_t v = 0; v < part.rows; v++) {
        uint64_t reached = 0;
        for (uint32_t p = 0; p < 33; p++)
            reached |= (plane[p] >> v & 1) << p;
        part.row[v].vertex = s->state->vertex[v];
        part.row[v].rounds = s->state->round;
        part.row[v].reached = reached;
    }
    return wherry_reply(&part, WHERRY_ROWS_HEAD + part.rows * (uint32_t)sizeof part.row[0]);
}

static int32_t reply_none(void)
{
    static const uint32_t none[2] = {0, 0};
    return wherry_reply(none, sizeof none);
}

/* Goes on step by step for as long as all lists are there. */
static int32_t advance(spread_t *s)
{
    state_t *st = s->state;
    for (;;) {
        rounds_tally_t *t = &st->tally[st->step][st->round & 1];
        if (!st->started || st->finished || !rounds_complete(&s->rounds, t, st->step))
            return reply_none();
        uint32_t grown = t->flags & GROWN;
        memset(t, 0, sizeof *t);
        if (st->step + 1 < s->rounds.steps) {
            WHERRY_TRY(send_lists(s, st->step + 1, grown));
            continue;
        }
        st->round++;
        if (!grown) {
            st->finished = 1;
            return answer(s);
        }
        WHERRY_TRY(play(s));
    }
}

/* Takes a vertex that the caller named. */
static int32_t name(spread_t *s, uint32_t vertex)
{
    state_t *st = s->state;
    if (vertex >= s->shards.total)
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t i = 0; i < st->vertices; i++)
        if (st->vertex[i] == vertex)
            return WHERRY_OK;
    if (st->vertices == MOST) {
        static const char why[] = "vertices has more than 64 of them";
        wherry_log(why, sizeof why - 1);
        return WHERRY_ERR_LIMIT;
    }
    uint64_t local;
    if (shards_here(&s->shards, vertex, &local))
        grow(s, vertex, 1ull << st->vertices);
    st->vertex[st->vertices++] = vertex;
    return WHERRY_OK;
}

static int32_t begin(spread_t *s, const char *text, uint32_t size)
{
    if (s->state->started)
        return WHERRY_ERR_ARGUMENT;
    s->state->started = 1;
    uint32_t at = 0, vertex;
    int32_t more;
    while ((more = vertices_next(text, size, &at, &vertex)) > 0)
        WHERRY_TRY(name(s, vertex));
    WHERRY_TRY(more);
    WHERRY_TRY(play(s));
    return advance(s);
}

static int32_t take_list(spread_t *s, const list_t *m)
{
    const entry_t *entry = (const entry_t *)(m + 1);
    state_t *st = s->state;
    uint32_t step = m->step;
    if (st->idle && step == 2) { /* the others may have gone on without us */
        st->round = m->round;
        st->idle = 0;
        memset(st->tally, 0, sizeof st->tally);
    }
    if (m->round - st->round > 1 || step >= s->rounds.steps) /* a sender is in our round, or one ahead */
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t i = 0; i < m->count; i++, entry++) {
        uint64_t local, bits = entry->low | (uint64_t)entry->high << 32;
        if (shards_here(&s->shards, entry->vertex, &local))
            grow(s, entry->vertex, bits);
        else if (step + 1 < s->rounds.steps)
            WHERRY_TRY(tell(s, entry->vertex, bits));
        else
            return WHERRY_ERR_ARGUMENT;
    }
    rounds_count(&s->rounds, &st->tally[step][m->round & 1], m->from, m->messages, m->flags);
    return advance(s);
}

WHERRY_ENTRY(payload, size)
{
    spread_t s;
    memset(&s, 0, sizeof s);
    const params_t *p = (const params_t *)payload;
    const list_t *m = (const list_t *)payload;
    if (size < sizeof *p)
        return WHERRY_ERR_ARGUMENT;
    s.direction = p->direction & ~LISTED;
    if (p->direction & LISTED) {
        if (size < sizeof *m || m->count > (size - sizeof *m) / sizeof(entry_t))
            return WHERRY_ERR_ARGUMENT;
        WHERRY_TRY(open_spread(&s));
        return take_list(&s, m);
    }
    const char *text = wherry_text(payload, size, p->vertices);
    if (!text)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(open_spread(&s));
    return begin(&s, text, p->vertices.size);
}
