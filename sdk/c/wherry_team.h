/* wherry_team.h: functions whose elements work together in steps: gather, reduce, tell, and shuffle with a barrier.
 *
 *     #include "wherry.h"
 *     #include "wherry_team.h"
 *
 *     // The greatest number anywhere. Started on every element; element 0 replies.
 *     enum { GREATEST = 1 };
 *
 *     WHERRY_ENTRY(payload, size)
 *     {
 *         wherry_team_t t;
 *         uint64_t own;
 *         WHERRY_TRY(wherry_team_open(&t, payload, size, sizeof(uint64_t), 0));
 *         uint64_t *most = (uint64_t *)t.state;        // in scratch: 0 at first
 *         switch (t.step) {
 *         case 0:                                      // the call's own payload is at t.data
 *             WHERRY_TRY(greatest_here(&own));
 *             return wherry_reduce(&t, GREATEST, &own, sizeof own);
 *         case GREATEST:                               // an element's, or that of all below it
 *             if (*(const uint64_t *)t.data > *most)
 *                 *most = *(const uint64_t *)t.data;
 *             if (!t.last)
 *                 return WHERRY_OK;                    // others are to come
 *             if (t.self != 0)
 *                 return wherry_reduce_up(&t, most, sizeof *most);
 *             return wherry_reply(most, sizeof *most);
 *         }
 *         return WHERRY_ERR_ARGUMENT;
 *     }
 *
 * Each message is a run of the function at the element that it goes to, with its step's number and data; t.last says that it is the last
 * one of that step here.  A message can come before the element's own run of step 0, or before an earlier step is complete there: what
 * it brings belongs into t.state, by its step.  Steps are numbers of the author's, from 1, each for one use in a call; at most WHERRY_TEAM_STEPS of
 * them are incomplete at an element at once.  Data has at most WHERRY_TEAM_BYTES.
 *
 * The manifest starts the function on every element ("start": "every") and has "scratch_bytes": WHERRY_TEAM_SCRATCH(elements) and t.state's.
 */
#ifndef WHERRY_TEAM_H
#define WHERRY_TEAM_H

#include "wherry.h"

#ifndef WHERRY_TEAM_BYTES
#define WHERRY_TEAM_BYTES 32768u
#endif
#ifndef WHERRY_TEAM_BATCH
#define WHERRY_TEAM_BATCH 4096u /* of a shuffle: what is collected for each element before it is sent; a multiple of 8, at most WHERRY_TEAM_BYTES */
#endif
#define WHERRY_TEAM_STEPS 8u
#define WHERRY_TEAM_SHUFFLES 1u /* in a team's flags: it shuffles records, which needs scratch for each element */
#define WHERRY_TEAM_SCRATCH(elements) (128u + (elements) * (WHERRY_TEAM_BATCH + 8u)) /* without shuffles 128 */
#define WHERRY_TEAM_MAGIC 0x31656d6165747977ull

/* What a message between elements begins with. */
typedef struct {
    uint64_t magic;
    uint32_t step, from;
    uint32_t senders; /* of the step's at the receiver, itself among them */
    uint32_t count;   /* in a sender's last message how many it sent, else 0 */
} wherry_team_head_t;

typedef struct {
    uint32_t step, arrived, expected, done;
} wherry_team_tally_t;

/* What a shuffle has for an element. */
typedef struct {
    uint32_t sent, used;
} wherry_team_batch_t;

typedef struct {
    uint32_t step;    /* 0: the call's own payload */
    uint32_t from;    /* who sent it */
    int last;         /* nothing more of this step comes here */
    const void *data; /* 8-aligned */
    uint32_t size;
    void *state;      /* in scratch: what this element keeps; zero at first */
    uint32_t self, elements;
    wherry_team_tally_t *tally;
    wherry_team_batch_t *batch; /* by element, and then their bytes; NULL without shuffles */
} wherry_team_t;

static struct {
    wherry_team_head_t head;
    uint64_t data[WHERRY_TEAM_BYTES / 8];
} wherry_team_out __attribute__((unused));

/* Where data can be built that is then sent without a copy: WHERRY_TEAM_BYTES. */
WHERRY_INLINE void *wherry_team_room(void) { return wherry_team_out.data; }

/* What is counted of a step: the free place where it begins if it is none yet, NULL if there is none. */
WHERRY_HELPER wherry_team_tally_t *wherry_team_tally(const wherry_team_t *t, uint32_t step)
{
    wherry_team_tally_t *vacant = NULL;
    for (uint32_t i = 0; i < WHERRY_TEAM_STEPS; i++) {
        if (t->tally[i].step == step)
            return &t->tally[i];
        if (t->tally[i].step == 0 && !vacant)
            vacant = &t->tally[i];
    }
    return vacant;
}

/* Asks for scratch, the same in every run, and reads what came. */
WHERRY_HELPER int32_t wherry_team_open(wherry_team_t *t, const void *payload, uint32_t size, uint32_t state_bytes, uint32_t flags)
{
    const wherry_team_head_t *h = (const wherry_team_head_t *)payload;
    t->step = t->from = 0;
    t->last = 1;
    t->data = payload;
    t->size = size;
    t->self = (uint32_t)wherry_self();
    t->elements = (uint32_t)wherry_elements();
    uint64_t before = WHERRY_TEAM_STEPS * sizeof *t->tally + wherry_align8(state_bytes);
    uint64_t each = flags & WHERRY_TEAM_SHUFFLES ? sizeof *t->batch + WHERRY_TEAM_BATCH : 0;
    uint8_t *at = (uint8_t *)wherry_scratch(before + t->elements * each);
    if (!at)
        return WHERRY_ERR_LIMIT;
    t->tally = (wherry_team_tally_t *)at;
    t->state = t->tally + WHERRY_TEAM_STEPS;
    t->batch = each ? (wherry_team_batch_t *)(at + before) : NULL;
    if (size < sizeof *h || h->magic != WHERRY_TEAM_MAGIC)
        return WHERRY_OK;
    wherry_team_tally_t *y = wherry_team_tally(t, h->step);
    if (h->step == 0 || h->from >= t->elements)
        return WHERRY_ERR_ARGUMENT;
    if (!y)
        return WHERRY_ERR_LIMIT;
    t->step = y->step = h->step;
    t->from = h->from;
    t->data = h + 1;
    t->size = size - (uint32_t)sizeof *h;
    y->arrived++;
    if (h->count) {
        y->expected += h->count;
        y->done++;
    }
    t->last = y->done == h->senders && y->arrived == y->expected;
    if (t->last)
        *y = (wherry_team_tally_t){0, 0, 0, 0};
    return WHERRY_OK;
}

/* Sends a message: onward if the run is over with it, else by a branch of its own. */
WHERRY_HELPER int32_t wherry_team_send(const wherry_team_t *t, uint32_t to, uint32_t step, const void *data, uint32_t size, uint32_t senders, uint32_t count,
                                       int onward)
{
    if (size > WHERRY_TEAM_BYTES || step == 0 || to >= t->elements)
        return WHERRY_ERR_ARGUMENT;
    wherry_team_out.head = (wherry_team_head_t){WHERRY_TEAM_MAGIC, step, t->self, senders, count};
    if (size && data != wherry_team_out.data)
        memcpy(wherry_team_out.data, data, size);
    size += (uint32_t)sizeof wherry_team_out.head;
    return onward ? wherry_forward(0, (int32_t)to, &wherry_team_out, size) : wherry_fork_wait(0, (int32_t)to, &wherry_team_out, size);
}

/* ---- Each of these ends the run: return what it returns. ---- */

/* Every element sends its data to one, this one among them: root hears each of them as a message of the step. */
WHERRY_HELPER int32_t wherry_gather(const wherry_team_t *t, uint32_t root, uint32_t step, const void *data, uint32_t size)
{
    return wherry_team_send(t, root, step, data, size, t->elements, 1, 1);
}

/* Every element gives a value, which go up a tree of elements to element 0: each hears its own and those of the two elements below it as messages
 * of the step, puts them together in t->state, and with the last one sends that up with wherry_reduce_up.  Element 0 then has all. */
WHERRY_INLINE uint32_t wherry_team_below(const wherry_team_t *t, uint32_t element)
{
    uint32_t first = 2 * element + 1;
    return first >= t->elements ? 0 : first + 1 >= t->elements ? 1 : 2;
}

WHERRY_HELPER int32_t wherry_reduce(const wherry_team_t *t, uint32_t step, const void *value, uint32_t size)
{
    return wherry_team_send(t, t->self, step, value, size, 1 + wherry_team_below(t, t->self), 1, 1);
}

WHERRY_HELPER int32_t wherry_reduce_up(const wherry_team_t *t, const void *value, uint32_t size)
{
    uint32_t above = (t->self - 1) / 2;
    return t->self == 0 ? WHERRY_ERR_ARGUMENT : wherry_team_send(t, above, t->step, value, size, 1 + wherry_team_below(t, above), 1, 1);
}

/* One element, whichever it is, tells all, itself too. */
WHERRY_HELPER int32_t wherry_tell(const wherry_team_t *t, uint32_t step, const void *data, uint32_t size)
{
    for (uint32_t e = 0; e < t->elements; e++)
        if (e != t->self)
            WHERRY_TRY(wherry_team_send(t, e, step, data, size, 1, 1, 0));
    return wherry_team_send(t, t->self, step, data, size, 1, 1, 1);
}

/* ---- A shuffle: every element has records for every other one. ----
 *
 *     for (...)
 *         WHERRY_TRY(wherry_shuffle(&t, STEP, element, &record, sizeof record));
 *     return wherry_shuffle_close(&t, STEP);
 *
 * The records that elements have for this one come as messages of the step, many in one, one behind the other in the sizes that they were given in; some
 * are empty.  With t.last they are all there, and all elements have closed the shuffle: it is a barrier too, and one without records nothing else.
 * A run closes what it has begun, before anything else of these.  Elements send each other at least one message: n * n of them. */

WHERRY_INLINE uint8_t *wherry_team_bytes(const wherry_team_t *t, uint32_t element)
{
    return (uint8_t *)(t->batch + t->elements) + (uint64_t)element * WHERRY_TEAM_BATCH;
}

WHERRY_HELPER int32_t wherry_shuffle(const wherry_team_t *t, uint32_t step, uint32_t to, const void *record, uint32_t size)
{
    if (to >= t->elements || size > WHERRY_TEAM_BATCH || !t->batch)
        return WHERRY_ERR_ARGUMENT;
    wherry_team_batch_t *b = &t->batch[to];
    if (b->used + size > WHERRY_TEAM_BATCH) {
        WHERRY_TRY(wherry_team_send(t, to, step, wherry_team_bytes(t, to), b->used, t->elements, 0, 0));
        b->sent++;
        b->used = 0;
    }
    memcpy(wherry_team_bytes(t, to) + b->used, record, size);
    b->used += size;
    return WHERRY_OK;
}

WHERRY_HELPER int32_t wherry_shuffle_close(const wherry_team_t *t, uint32_t step)
{
    for (uint32_t i = 1; i <= t->elements; i++) { /* this element's own comes last, onward */
        uint32_t to = (t->self + i) % t->elements;
        wherry_team_batch_t b = t->batch ? t->batch[to] : (wherry_team_batch_t){0, 0};
        if (t->batch)
            t->batch[to] = (wherry_team_batch_t){0, 0};
        WHERRY_TRY(wherry_team_send(t, to, step, b.used ? wherry_team_bytes(t, to) : NULL, b.used, t->elements, b.sent + 1, i == t->elements));
    }
    return WHERRY_OK;
}

#endif
