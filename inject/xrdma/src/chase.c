/* chase: follows a chain of indices through a sharded table.
 *
 * Window 0 is this element's shard of an array of u64, whose values are row
 * numbers of the whole array.  From row `start` the function takes `depth`
 * steps row = table[row] and replies with the row it stands on.  It walks for
 * as long as the row lies here and forwards itself to the row's owner when it
 * does not; nothing goes back to the caller in between.
 *
 * What travels on: {u64 row, u64 left}, as the caller's {start, depth}; and
 * where all shards have the same number of rows, 6 more bytes with that number.
 * The next element then needs no host call to know its own range or the next
 * owner: one for the window, one to forward.  22 bytes and the message's header
 * still fit one 64-byte slot of a shared-memory ring.
 */
#include "wherry.h"

#define PLAIN_BYTES 16
#define BLOCK_BYTES 22

typedef struct {
    uint64_t row, left;
    uint32_t block_low;
    uint16_t block_high;
} travel_t;

/* The rows of every shard if they are the same (the last may have fewer), else 0. */
static uint64_t equal_blocks(int32_t elements)
{
    uint64_t block = 0;
    for (int32_t e = 0; e < elements; e++) {
        wherry_rows_range_t r;
        if (wherry_shard_rows(e, &r) != WHERRY_OK)
            return 0;
        if (e == 0)
            block = r.count;
        int last = e == elements - 1;
        if (r.first != (uint64_t)e * block || r.count > block || (r.count < block && !last))
            return 0;
    }
    return block >> 48 ? 0 : block;
}

/* Rows dealt out (cyclic, hash), no ranges: the host says where each one is. */
static int32_t chase_anywhere(const uint64_t *table, uint64_t rows, uint64_t row, uint64_t left, int32_t self)
{
    for (; left; left--) {
        uint64_t local;
        int32_t owner = wherry_owner(row, &local);
        if (owner < 0)
            return owner;
        if (owner != self) {
            uint64_t next[2] = {row, left};
            return wherry_forward(owner, next, PLAIN_BYTES);
        }
        if (local >= rows)
            return WHERRY_ERR_ARGUMENT;
        row = table[local];
    }
    return wherry_reply(&row, sizeof row);
}

/* Follows the chain from *row while it lies in the rows from first on, and
 * counts *left down. Eight steps a turn: the checks that stop a runaway loop
 * cost once a turn. */
static inline __attribute__((always_inline)) uint64_t walk(const uint64_t *table, uint64_t first, uint64_t count, uint64_t row, uint64_t *left)
{
    uint64_t local = row - first, n = *left;
    /* Where row 0 would lie; it keeps a subtraction out of the way from one load
     * to the next, and may be no valid address by itself. */
    const uintptr_t origin = (uintptr_t)table - (uintptr_t)first * sizeof *table;
#define STEP(done)                          \
    if (WHERRY_UNLIKELY(local >= count)) {  \
        n -= done;                          \
        goto away;                          \
    }                                       \
    row = *(const uint64_t *)(origin + (uintptr_t)row * sizeof *table); \
    local = row - first;
    for (; n >= 8; n -= 8) {
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
    }
    for (; n; n--) {
        STEP(0)
    }
away:
    *left = n;
    return row;
}

/* What travels is where the payload came: nothing is built anew on the way. */
WHERRY_HELPER int32_t answer(travel_t *at, uint64_t row)
{
    at->row = row;
    return wherry_reply(&at->row, sizeof at->row);
}

WHERRY_HELPER int32_t go_on(travel_t *at, uint64_t row, uint64_t left, uint64_t block)
{
    uint64_t element = row / block;
    if (WHERRY_UNLIKELY(element > INT32_MAX))
        return WHERRY_ERR_ARGUMENT;
    at->row = row;
    at->left = left;
    return wherry_forward((int32_t)element, at, BLOCK_BYTES);
}

/* The first visit: {start, depth}, and the host is asked for the rows here. */
static __attribute__((noinline)) int32_t begin(const uint64_t *table, uint64_t count, uint64_t row, uint64_t left)
{
    wherry_rows_range_t mine;
    int32_t self = wherry_self(), st = wherry_shard_rows(self, &mine);
    if (st == WHERRY_ERR_UNSUPPORTED)
        return chase_anywhere(table, count, row, left, self);
    WHERRY_TRY(st);
    if (count > mine.count)
        count = mine.count;
    row = walk(table, mine.first, count, row, &left);
    travel_t t;
    if (!left)
        return answer(&t, row);
    uint64_t block = equal_blocks(wherry_elements());
    if (!block) {
        uint64_t local;
        int32_t owner = wherry_owner(row, &local);
        if (owner < 0)
            return owner;
        if (owner == self) /* its window ends before its shard does */
            return WHERRY_ERR_ARGUMENT;
        uint64_t next[2] = {row, left};
        return wherry_forward(owner, next, PLAIN_BYTES);
    }
    if (row - mine.first < block) /* ours by number, but beyond what we have */
        return WHERRY_ERR_ARGUMENT;
    t.block_low = (uint32_t)block;
    t.block_high = (uint16_t)(block >> 32);
    return go_on(&t, row, left, block);
}

WHERRY_ENTRY(payload, size)
{
    travel_t *at = (travel_t *)payload;
    wherry_window_t w;
    int32_t st = wherry_window(0, &w);
    if (WHERRY_UNLIKELY(st != WHERRY_OK)) {
        if (st != WHERRY_ERR_NO_WINDOW)
            return st;
        w.addr = NULL; /* no rows here: the chase may still start here */
        w.size = 0;
    }
    const uint64_t *table = (const uint64_t *)w.addr;
    uint64_t count = w.size / sizeof *table, row = at->row, left = at->left;
    if (WHERRY_UNLIKELY(size != BLOCK_BYTES))
        return size == PLAIN_BYTES ? begin(table, count, row, left) : WHERRY_ERR_ARGUMENT;
    uint64_t block = at->block_low | (uint64_t)at->block_high << 32;
    if (WHERRY_UNLIKELY(block == 0))
        return WHERRY_ERR_ARGUMENT;
    uint64_t first = row - row % block;
    row = walk(table, first, count < block ? count : block, row, &left);
    if (!left)
        return answer(at, row);
    if (WHERRY_UNLIKELY(row - first < block)) /* ours by number, but beyond what we have */
        return WHERRY_ERR_ARGUMENT;
    return go_on(at, row, left, block);
}
