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

static int32_t forward_blocks(uint64_t row, uint64_t left, uint64_t block)
{
    uint64_t element = row / block;
    if (element > INT32_MAX)
        return WHERRY_ERR_ARGUMENT;
    travel_t t = {row, left, (uint32_t)block, (uint16_t)(block >> 32)};
    return wherry_forward((int32_t)element, &t, BLOCK_BYTES);
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

WHERRY_ENTRY(payload, size)
{
    const travel_t *in = (const travel_t *)payload;
    if (size != PLAIN_BYTES && size != BLOCK_BYTES)
        return WHERRY_ERR_ARGUMENT;
    uint64_t row = in->row, left = in->left, block = 0;
    wherry_window_t w;
    int32_t st = wherry_window(0, &w);
    if (st == WHERRY_ERR_NO_WINDOW) { /* no rows here: the chase may still start here */
        w.addr = NULL;
        w.size = 0;
    } else {
        WHERRY_TRY(st);
    }
    const uint64_t *table = (const uint64_t *)w.addr;
    uint64_t count = w.size / sizeof *table, first;
    int32_t self = -1;
    if (size == BLOCK_BYTES) {
        block = in->block_low | (uint64_t)in->block_high << 32;
        if (block == 0)
            return WHERRY_ERR_ARGUMENT;
        first = row - row % block;
        if (count > block)
            count = block;
    } else {
        wherry_rows_range_t mine;
        self = wherry_self();
        st = wherry_shard_rows(self, &mine);
        if (st == WHERRY_ERR_UNSUPPORTED)
            return chase_anywhere(table, count, row, left, self);
        WHERRY_TRY(st);
        first = mine.first;
        if (count > mine.count)
            count = mine.count;
    }

    /* Eight steps a turn: the checks that stop a runaway loop cost once a turn. */
    uint64_t local = row - first;
    /* Where row 0 would lie; it keeps a subtraction out of the way from one load
     * to the next, and may be no valid address by itself. */
    const uintptr_t origin = (uintptr_t)table - (uintptr_t)first * sizeof *table;
#define STEP(done)                          \
    if (WHERRY_UNLIKELY(local >= count)) {  \
        left -= done;                       \
        goto away;                          \
    }                                       \
    row = *(const uint64_t *)(origin + (uintptr_t)row * sizeof *table); \
    local = row - first;
    for (; left >= 8; left -= 8) {
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
    }
    for (; left; left--) {
        STEP(0)
    }
    return wherry_reply(&row, sizeof row);

away:
    if (size == PLAIN_BYTES) {
        block = equal_blocks(wherry_elements());
        if (!block) {
            int32_t owner = wherry_owner(row, &local);
            if (owner < 0)
                return owner;
            if (owner == self) /* its window ends before its shard does */
                return WHERRY_ERR_ARGUMENT;
            uint64_t next[2] = {row, left};
            return wherry_forward(owner, next, PLAIN_BYTES);
        }
    }
    if (local < block) /* ours by number, but beyond what we have */
        return WHERRY_ERR_ARGUMENT;
    return forward_blocks(row, left, block);
}
