/* shards.h: which element holds a row, without asking the host each time.
 *
 * The table of the shards' first rows is built once per invocation and element
 * and kept in scratch.  It needs shards that are contiguous ranges in the order
 * of the elements; any other sharding is asked of the host, row by row. */
#ifndef SHARDS_H
#define SHARDS_H

#include "wherry.h"

typedef struct {
    int32_t self, elements;
    uint64_t first, count; /* this element's rows, if ranges */
    uint64_t total;        /* all rows, if ranges */
    const uint64_t *start; /* elements + 1 of them; NULL: ask the host */
} shards_t;

/* Words of zeroed scratch that shards_open wants: a state and the starts. */
#define SHARDS_WORDS(elements) ((uint64_t)(elements) + 2)
#define SHARDS_RANGES 1
#define SHARDS_OTHER 2

/* How many rows there are in all, if shards are ranges: enough to size scratch
 * before shards_open has checked that they are. */
WHERRY_HELPER uint64_t shards_total(int32_t elements)
{
    wherry_rows_range_t last;
    if (elements < 1 || wherry_shard_rows(elements - 1, &last) != WHERRY_OK)
        return 0;
    return last.first + last.count;
}

/* self and elements must be set; it fills in the rest. */
WHERRY_HELPER void shards_open(shards_t *s, uint64_t *words)
{
    uint64_t *start = words + 1;
    if (words[0] == 0) {
        uint64_t next = 0;
        words[0] = SHARDS_RANGES;
        for (int32_t e = 0; e < s->elements; e++) {
            wherry_rows_range_t r;
            if (wherry_shard_rows(e, &r) != WHERRY_OK || r.first != next) {
                words[0] = SHARDS_OTHER;
                break;
            }
            start[e] = next;
            next += r.count;
        }
        start[s->elements] = next;
    }
    s->start = NULL;
    s->first = s->count = s->total = 0;
    if (words[0] == SHARDS_RANGES) {
        s->start = start;
        s->first = start[s->self];
        s->count = start[s->self + 1] - s->first;
        s->total = start[s->elements];
    }
}

/* The element that holds row, or a negative status; *local: its index there. */
WHERRY_INLINE int32_t shards_find(const shards_t *s, uint64_t row, uint64_t *local)
{
    if (!s->start)
        return wherry_owner(row, local);
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

#endif
