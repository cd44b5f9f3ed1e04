/* chase: follows a chain of indices through a sharded table.
 *
 * Window 0 is this element's shard of an array of u64, whose values are row
 * numbers of the whole array.  From row `start` the function takes `depth`
 * steps row = table[row] and replies with the row it stands on.  It walks for
 * as long as the row lies here.  A row of an element on this machine, whose
 * memory is mapped, it reads from here: that takes a tenth of a message.  To
 * the owner of any other it forwards itself; nothing goes back to the caller
 * in between.  Where a step led to what is no row, the chase ends with a word
 * on which row holds that.
 *
 * What travels on: {u64 row, u64 left}, as the caller's {start, depth}; or,
 * where all shards have the same number of rows, 22 bytes with that number and
 * the table's.  The next element then needs no host call to know its own range
 * or the next owner: one for the window, one to forward.  22 bytes and the
 * message's header still fit one 64-byte slot of a shared-memory ring.
 */
#include "wherry.h"

typedef struct {
    uint64_t row, left;
} plain_t;

typedef struct {
    uint64_t row;
    uint32_t left, block;
    uint32_t rows_low;
    uint16_t rows_high;
} blocks_t;

#define BLOCKS_BYTES 22
#define MOST_ROWS ((uint64_t)1 << 48) /* no dataset has more */
#define COLD static __attribute__((noinline, minsize))

COLD char *number(char *to, uint64_t v)
{
    if (v > 9)
        to = number(to, v / 10);
    *to = (char)('0' + v % 10);
    return to + 1;
}

/* Eight bytes at a time are constants in the code: no data, no second page of memory. */
#define SAY(text8, bytes)                \
    __builtin_memcpy(to, text8, 8);      \
    to += bytes;

/* Gives up: row holds value, which is no row. If they are the same, nobody here holds it. */
COLD int32_t lost(uint64_t row, uint64_t value, uint64_t rows)
{
    if (row == value)
        return WHERRY_ERR_ARGUMENT;
    char text[96], *to = text;
    SAY("row \0\0\0", 4)
    to = number(to, row);
    SAY(" holds ", 7)
    if ((int64_t)value < 0) {
        *to++ = '-';
        value = -value;
    }
    to = number(to, value);
    SAY("; there ", 8)
    SAY("are \0\0\0", 4)
    to = number(to, rows);
    SAY(" rows\0\0", 5)
    wherry_log(text, (uint32_t)(to - text));
    return WHERRY_ERR_ARGUMENT;
}

/* Rows dealt out (cyclic, hash), no ranges: the host says where each one is. */
COLD int32_t chase_anywhere(const uint64_t *table, uint64_t count, plain_t *at, int32_t self)
{
    uint64_t last = at->row, local;
    for (; at->left; at->left--) {
        int32_t owner = wherry_owner(0, at->row, &local);
        if (owner < 0) {
            uint64_t low = 0, high = MOST_ROWS; /* rows below low have an owner, high has none */
            while (low < high) {
                uint64_t middle = (low + high) / 2;
                if (wherry_owner(0, middle, &local) >= 0)
                    low = middle + 1;
                else
                    high = middle;
            }
            return lost(last, at->row, low);
        }
        last = at->row;
        if (owner != self) {
            int32_t st = wherry_get_near(owner, 0, local * sizeof *table, &at->row, sizeof at->row);
            if (st == WHERRY_ERR_FAR)
                return wherry_forward(0, owner, at, sizeof *at);
            if (st != WHERRY_OK)
                return st;
            continue;
        }
        if (local >= count)
            return WHERRY_ERR_ARGUMENT;
        at->row = table[local];
    }
    return wherry_reply(&at->row, sizeof at->row);
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

/* How many rows an element has, and how many there are; an error where elements differ (but for the last, which may have
 * fewer), so that each row's owner has to be asked for. */
COLD int32_t blocks(uint64_t left, uint64_t *block, uint64_t *rows)
{
    uint64_t differ = 0;
    int32_t elements = wherry_elements(), e = 0;
    do {
        wherry_rows_range_t r;
        WHERRY_TRY(wherry_shard_rows(0, e, &r));
        if (e == 0)
            *block = r.count;
        differ |= r.first ^ (uint64_t)e * *block;
        *rows = r.first + r.count;
    } while (++e < elements);
    return differ || (left | *block) >> 32 || *rows > (uint64_t)elements * *block ? WHERRY_ERR_UNSUPPORTED : WHERRY_OK;
}

/* Follows the chain from *row through the rows of an element, from first on, for as long as it lies there; the step before
 * the one to *row was *last. WHERRY_ERR_FAR: one has to go there. */
static int32_t follow(int32_t element, uint64_t first, uint64_t shard, uint64_t *row, uint64_t *left, uint64_t *last)
{
    do {
        *last = *row;
        WHERRY_TRY(wherry_get_near(element, 0, (*row - first) * sizeof *row, row, sizeof *row));
    } while (--*left && *row - first < shard);
    return WHERRY_OK;
}

/* What is no row shows only after the step to it: the way is gone again, to say who holds it. */
COLD int32_t astray(const uint64_t *table, uint64_t first, uint64_t count, uint64_t row, uint64_t rows)
{
    uint64_t last = row;
    while (row - first < count) {
        last = row;
        row = table[row - first];
    }
    return lost(last, row, rows);
}

/* What travels is where the payload came: nothing is built anew on the way. */
WHERRY_ENTRY(payload, size)
{
    plain_t *plain = (plain_t *)payload;
    blocks_t mine, *at = (blocks_t *)payload;
    wherry_window_t w;
    int32_t st = wherry_window(0, &w), self = 0;
    if (WHERRY_UNLIKELY(st != WHERRY_OK)) {
        if (st != WHERRY_ERR_NO_WINDOW)
            return st;
        w.addr = NULL; /* no rows here: the chase may still start here */
        w.size = 0;
    }
    const uint64_t *table = (const uint64_t *)w.addr;
    uint64_t count = w.size / sizeof *table, row = at->row, first, shard, block, left, rows;
    if (WHERRY_LIKELY(size == BLOCKS_BYTES)) {
        block = shard = at->block;
        if (WHERRY_UNLIKELY(shard == 0))
            return WHERRY_ERR_ARGUMENT;
        first = row - row % shard;
        left = at->left;
        rows = at->rows_low | (uint64_t)at->rows_high << 32;
    } else {
        wherry_rows_range_t range;
        if (size != sizeof *plain)
            return WHERRY_ERR_ARGUMENT;
        self = wherry_self();
        st = wherry_shard_rows(0, self, &range);
        if (st != WHERRY_OK)
            return st == WHERRY_ERR_UNSUPPORTED ? chase_anywhere(table, count, plain, self) : st;
        first = range.first;
        shard = range.count;
        left = plain->left;
        block = 0; /* looked up where the chase leaves */
    }
    if (count > shard)
        count = shard;
    for (;;) {
        uint64_t last = row;
        row = walk(table, first, count, row, &left);
        if (!left)
            break;
        if (WHERRY_UNLIKELY(!block)) {
            st = blocks(left, &block, &rows);
            if (st != WHERRY_OK && (st != WHERRY_ERR_UNSUPPORTED || row >= rows))
                return st == WHERRY_ERR_UNSUPPORTED ? astray(table, first, count, last, rows) : st;
            if (st != WHERRY_OK) {
                plain_t next = {row, left};
                return row - first < shard ? WHERRY_ERR_ARGUMENT : chase_anywhere(table, count, &next, self);
            }
            at = &mine;
            at->block = (uint32_t)block;
            at->rows_low = (uint32_t)rows;
            at->rows_high = (uint16_t)(rows >> 32);
        }
        if (WHERRY_UNLIKELY(row >= rows))
            return astray(table, first, count, last, rows);
        if (WHERRY_UNLIKELY(row - first < shard)) /* its window ends before its shard does */
            return WHERRY_ERR_ARGUMENT;
        uint64_t owner = row / block;
        uint64_t begin = owner * block, there = rows - begin < block ? rows - begin : block;
        st = follow((int32_t)owner, begin, there, &row, &left, &last);
        if (WHERRY_LIKELY(st == WHERRY_ERR_FAR)) {
            at->row = row;
            at->left = (uint32_t)left;
            return wherry_forward(0, (int32_t)owner, at, BLOCKS_BYTES);
        }
        if (st != WHERRY_OK)
            return st;
        if (WHERRY_UNLIKELY(left && row >= rows))
            return lost(last, row, rows);
    }
    plain->row = row;
    return wherry_reply(&plain->row, sizeof row);
}
