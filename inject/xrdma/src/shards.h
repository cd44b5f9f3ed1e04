/* shards.h: which element holds a row, whatever the dataset's sharding.
 *
 * Where shards are ranges of rows in the order of the elements (block, and hash
 * by a field), a row's place is a subtraction here, or a search in a table of
 * the shards' first rows elsewhere.  Where rows are dealt out (cyclic, and hash
 * of row numbers) each is asked of the host: functions remember what they have
 * asked about, so that it is once per vertex and not once per edge.
 *
 * What takes many calls is done once per invocation and element and kept in
 * scratch. */
#ifndef SHARDS_H
#define SHARDS_H

#include "wherry.h"

typedef struct {
    int32_t self, elements;
    uint32_t ranges;       /* whether shards are ranges */
    uint64_t first, count; /* this element's rows, if ranges; else 0 and 0 */
    uint64_t held;         /* how many rows are here, in any case */
    uint64_t total;        /* how many there are in all */
    const uint64_t *start; /* elements + 1: how many rows the elements before have */
} shards_t;

/* Words of zeroed scratch that shards_open wants: a state and the starts. */
#define SHARDS_WORDS(elements) ((uint64_t)(elements) + 2)
#define SHARDS_RANGES 1
#define SHARDS_DEALT 2

#define SHARDS_ROWS_MOST ((uint64_t)1 << 48) /* no dataset has more */

/* How many rows there are in all, to size scratch with. */
WHERRY_HELPER int32_t shards_total(int32_t elements, uint64_t *total)
{
    wherry_rows_range_t last;
    if (elements < 1)
        return WHERRY_ERR_ARGUMENT;
    int32_t st = wherry_shard_rows(0, elements - 1, &last);
    if (st == WHERRY_OK)
        *total = last.first + last.count;
    if (st != WHERRY_ERR_UNSUPPORTED)
        return st;
    uint64_t low = 0, high = SHARDS_ROWS_MOST, local; /* rows below low have an owner, high has none */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (wherry_owner(0, middle, &local) >= 0)
            low = middle + 1;
        else
            high = middle;
    }
    *total = low;
    return WHERRY_OK;
}

/* How many rows an element holds. */
WHERRY_HELPER int32_t shards_held(int32_t element, uint64_t *held)
{
    wherry_rows_range_t r;
    int32_t st = wherry_shard_rows(0, element, &r);
    if (st == WHERRY_OK)
        *held = r.count;
    if (st != WHERRY_ERR_UNSUPPORTED)
        return st;
    uint64_t low = 0, high = SHARDS_ROWS_MOST;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (wherry_row(0, element, middle) >= 0)
            low = middle + 1;
        else
            high = middle;
    }
    *held = low;
    return WHERRY_OK;
}

/* self and elements must be set; it fills in the rest. */
WHERRY_HELPER int32_t shards_open(shards_t *s, uint64_t *words)
{
    uint64_t *start = words + 1;
    if (words[0] == 0) {
        uint64_t next = 0, held = 0, kind = SHARDS_RANGES;
        for (int32_t e = 0; e < s->elements; e++) {
            wherry_rows_range_t r;
            if (wherry_shard_rows(0, e, &r) != WHERRY_OK || r.first != next)
                kind = SHARDS_DEALT;
            WHERRY_TRY(shards_held(e, &held));
            start[e] = next;
            next += held;
        }
        start[s->elements] = next;
        words[0] = kind;
    }
    s->start = start;
    s->ranges = words[0] == SHARDS_RANGES;
    s->total = start[s->elements];
    s->held = start[s->self + 1] - start[s->self];
    s->first = s->ranges ? start[s->self] : 0;
    s->count = s->ranges ? s->held : 0;
    return WHERRY_OK;
}

/* The element that holds row, or a negative status; *local: its index there. */
WHERRY_INLINE int32_t shards_find(const shards_t *s, uint64_t row, uint64_t *local)
{
    if (!s->ranges)
        return wherry_owner(0, row, local);
    if (row - s->first < s->count) {
        *local = row - s->first;
        return s->self;
    }
    if (row >= s->total)
        return WHERRY_ERR_ARGUMENT;
    int32_t low = 0, high = s->elements; /* start[low] <= row < start[high] */
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (s->start[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    *local = row - s->start[low];
    return low;
}

/* Whether row lies here; *local: its index. */
WHERRY_INLINE int shards_here(const shards_t *s, uint64_t row, uint64_t *local)
{
    *local = row - s->first;
    if (WHERRY_LIKELY(*local < s->count))
        return 1;
    return !s->ranges && wherry_owner(0, row, local) == s->self;
}

/* The row that lies here at local, which must be less than held. */
WHERRY_INLINE uint64_t shards_row(const shards_t *s, uint64_t local)
{
    return s->ranges ? s->first + local : (uint64_t)wherry_row(0, s->self, local);
}

#endif
