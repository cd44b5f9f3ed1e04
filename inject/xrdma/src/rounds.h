/* rounds.h: who sends to whom in a round in which every element has something
 * for every other one.
 *
 * Up to ROUNDS_DIRECT elements send each other directly: one step.  More of
 * them stand in rows of about as many columns as there are rows, and a round
 * has two steps: first each sends to the others in its row what is for their
 * columns, then it passes on what it has for its own column, to each row.  So
 * a round of 64 elements takes 14 messages of each and not 63, and an element
 * that has all messages of the last step has heard of everybody, directly or
 * through others.
 *
 * The last row may be short.  Where it lacks a column, the element at that
 * column modulo the row's length stands in.
 *
 * Steps are counted within a round, 0 and 1.  A message of a step may come one
 * round early, never more: whoever sends it had this element's of the step in
 * the round before, or is waited for by others in the sender's row or column. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include "wherry.h"

#define ROUNDS_DIRECT 8u

typedef struct {
    uint32_t self, elements;
    uint32_t width, rows; /* columns of a full row, and how many rows */
    uint32_t row, column; /* this element's */
    uint32_t steps;       /* of a round */
} rounds_t;

WHERRY_HELPER void rounds_open(rounds_t *r, uint32_t self, uint32_t elements)
{
    uint32_t width = elements;
    if (elements > ROUNDS_DIRECT)
        for (width = 1; width * width < elements; width++)
            ;
    r->self = self;
    r->elements = elements;
    r->width = width;
    r->rows = (elements + width - 1) / width;
    r->row = self / width;
    r->column = self % width;
    r->steps = r->rows > 1 ? 2 : 1;
}

WHERRY_INLINE uint32_t rounds_length(const rounds_t *r, uint32_t row)
{
    return row + 1 < r->rows ? r->width : r->elements - row * r->width;
}

/* Who in this element's row has what is for a column. */
WHERRY_INLINE uint32_t rounds_holder(const rounds_t *r, uint32_t column)
{
    return r->row * r->width + column % rounds_length(r, r->row);
}

/* Where what is for an element goes next, and in which step. */
WHERRY_INLINE uint32_t rounds_next(const rounds_t *r, uint32_t element, uint32_t *step)
{
    *step = 0;
    if (element / r->width == r->row)
        return element;
    uint32_t holder = rounds_holder(r, element % r->width);
    if (holder != r->self)
        return holder;
    *step = 1;
    return element;
}

/* Whether this element sends to another one in a step of each round. */
WHERRY_INLINE int rounds_sends(const rounds_t *r, uint32_t step, uint32_t element)
{
    uint32_t in = 0;
    return element != r->self && rounds_next(r, element, &in) == element && in == step;
}

/* How many elements send to this one in a step. */
WHERRY_INLINE uint32_t rounds_senders(const rounds_t *r, uint32_t step)
{
    return step == 0 ? rounds_length(r, r->row) - 1 : r->rows - 1;
}

/* What an element counts about a step of one round. */
typedef struct {
    uint32_t messages, expected, done, flags;
} rounds_tally_t;

/* Counts a message; last says how many a sender's were, in its last one, else 0. */
WHERRY_INLINE void rounds_count(rounds_tally_t *t, uint32_t last, uint32_t flags)
{
    t->messages++;
    if (last) {
        t->expected += last;
        t->done++;
        t->flags |= flags;
    }
}

WHERRY_INLINE int rounds_complete(const rounds_t *r, const rounds_tally_t *t, uint32_t step)
{
    return t->done == rounds_senders(r, step) && t->messages == t->expected;
}

#endif
