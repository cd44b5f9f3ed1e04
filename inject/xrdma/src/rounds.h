/* rounds.h: who sends to whom in a round in which every element has something
 * for every other one, mostly little or nothing.
 *
 * Up to ROUNDS_DIRECT elements send each other directly: one step.  More of
 * them stand in groups of about as many elements as there are groups, and each
 * group has a head.  A round then has three steps: members send to their head
 * what is for anybody, heads send each other what is for their groups, and
 * heads send their members what is for them.  So a round of 64 elements takes
 * 168 messages and not 4,032, most elements are woken once in it, and each
 * hears of all others through its head.
 *
 * A member that has nothing to go on with says so (ROUNDS_IDLE).  Where there
 * is nothing for it either, its head sends it nothing in this round, and waits
 * for nothing of it from the next one on: it sleeps until there is.  Both know,
 * as the head decides after it was told.  What wakes a member is of the round
 * that the others are in; it goes on from there.
 *
 * Heads do not all stand at the same place of their group, as what elements
 * have in common (a processor, a rack) often goes by their number.
 *
 * Steps are counted within a round, from 0.  A message of a step may come one
 * round early, never more: nobody ends a round before all have begun it. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include "wherry.h"

#define ROUNDS_DIRECT 8u

#define ROUNDS_STEPS 3u

typedef struct {
    uint32_t self, elements;
    uint32_t width, groups; /* elements of a full group, and how many groups; the last may be short */
    uint32_t head;          /* of this element's group */
    uint32_t first, length; /* the group's elements */
    uint32_t steps;         /* of a round */
    uint8_t *rest;          /* at a head: how each element of the group rests; in scratch */
} rounds_t;

#define ROUNDS_IDLE (1u << 31) /* in a message's flags: the sender has nothing to go on with */
#define ROUNDS_ASLEEP 2        /* in rest, where 1 is idle */

/* Bytes of zeroed scratch for rest. */
#define ROUNDS_BYTES(elements) wherry_align8(elements)

WHERRY_INLINE uint32_t rounds_length(const rounds_t *r, uint32_t group)
{
    return group + 1 < r->groups ? r->width : r->elements - group * r->width;
}

/* The head of the group that an element is in. */
WHERRY_INLINE uint32_t rounds_head(const rounds_t *r, uint32_t element)
{
    uint32_t group = element / r->width;
    return group * r->width + group % rounds_length(r, group);
}

WHERRY_HELPER void rounds_open(rounds_t *r, uint32_t self, uint32_t elements)
{
    uint32_t width = elements;
    if (elements > ROUNDS_DIRECT)
        for (width = 1; width * width < elements; width++)
            ;
    r->self = self;
    r->elements = elements;
    r->width = width;
    r->groups = (elements + width - 1) / width;
    r->head = rounds_head(r, self);
    r->first = self / width * width;
    r->length = rounds_length(r, self / width);
    r->steps = r->groups > 1 ? ROUNDS_STEPS : 1;
}

/* Where what is for another element goes next, and in which step. */
WHERRY_INLINE uint32_t rounds_next(const rounds_t *r, uint32_t element, uint32_t *step)
{
    *step = 0;
    if (r->steps == 1)
        return element;
    if (r->self != r->head)
        return r->head;
    uint32_t head = rounds_head(r, element);
    *step = head == r->self ? 2 : 1;
    return head == r->self ? element : head;
}

/* Whether this element sends to another one in a step of each round. */
WHERRY_INLINE int rounds_sends(const rounds_t *r, uint32_t step, uint32_t element)
{
    uint32_t in = 0;
    return element != r->self && rounds_next(r, element, &in) == element && in == step;
}

/* Whether this element leaves out one that it sends to in a step, as there is nothing to tell it: that one sleeps then. */
WHERRY_INLINE int rounds_spares(rounds_t *r, uint32_t step, uint32_t element, int something)
{
    if (step != 2)
        return 0;
    uint8_t *rest = &r->rest[element - r->first];
    *rest = something || !*rest ? 0 : ROUNDS_ASLEEP;
    return *rest == ROUNDS_ASLEEP;
}

/* Whether this element may sleep. */
WHERRY_INLINE int rounds_member(const rounds_t *r) { return r->steps > 1 && r->self != r->head; }

/* How many elements send to this one in a step. */
WHERRY_INLINE uint32_t rounds_senders(const rounds_t *r, uint32_t step)
{
    if (r->steps == 1)
        return r->elements - 1;
    if (r->self != r->head)
        return step == 2;
    if (step)
        return step == 1 ? r->groups - 1 : 0;
    uint32_t awake = 0;
    for (uint32_t i = 0; i < r->length; i++)
        awake += r->rest[i] != ROUNDS_ASLEEP;
    return awake - 1;
}

/* What an element counts about a step of one round. */
typedef struct {
    uint32_t messages, expected, done, flags;
} rounds_tally_t;

/* Counts a message; last says how many a sender's were, in its last one, else 0. */
WHERRY_INLINE void rounds_count(rounds_t *r, rounds_tally_t *t, uint32_t from, uint32_t last, uint32_t flags)
{
    t->messages++;
    if (last) {
        t->expected += last;
        t->done++;
        t->flags |= flags & ~ROUNDS_IDLE;
        if (flags & ROUNDS_IDLE && from - r->first < r->length)
            r->rest[from - r->first] = 1;
    }
}

WHERRY_INLINE int rounds_complete(const rounds_t *r, const rounds_tally_t *t, uint32_t step)
{
    return t->done == rounds_senders(r, step) && t->messages == t->expected;
}

#endif
