/* names: the names of vertices.  With FIND, find: the vertices of names.
 *
 * Started on every element; each replies with rows {u32 vertex, str name} of
 * those vertices that it holds.  names walks the list of vertices.  find reads
 * every name of the shard once, and looks it up in a hash table of the names
 * that are sought: the graph keeps no index of names.
 *
 *     window 4   u32 offsets[rows + 1]   row i's name is
 *     window 5   text                    text[offsets[i] .. offsets[i + 1])
 *
 * A graph without names has no row. */
#include "shards.h"
#include "vertices.h"

typedef struct {
    wherry_str_t list; /* names: vertices, as text; find: names, one a line */
} params_t;

typedef struct {
    uint32_t vertex;
    wherry_str_t name;
} row_t;

typedef struct {
    const uint32_t *offsets;
    const uint8_t *text;
    uint64_t text_bytes;
    uint64_t rows; /* with a name */
    wherry_rows_t out;
} names_t;

static uint8_t part[WHERRY_PART_BYTES];

static int32_t names_open(names_t *n)
{
    wherry_window_t offsets, text;
    uint64_t held;
    WHERRY_TRY(wherry_window_or_empty(4, &offsets));
    WHERRY_TRY(wherry_window_or_empty(5, &text));
    WHERRY_TRY(shards_held(wherry_self(), &held));
    n->offsets = (const uint32_t *)offsets.addr;
    n->text = (const uint8_t *)text.addr;
    n->text_bytes = text.size;
    n->rows = offsets.size / sizeof *n->offsets;
    if (n->rows)
        n->rows--;
    if (n->rows && n->rows < held)
        return WHERRY_ERR_ARGUMENT;
    if (n->rows > held)
        n->rows = held;
    wherry_rows_init(&n->out, part, sizeof part, sizeof(row_t));
    wherry_rows_string(&n->out, offsetof(row_t, name));
    return WHERRY_OK;
}

/* A row's name; 0 if the offsets are broken. */
WHERRY_INLINE int name_of(const names_t *n, uint64_t row, const uint8_t **name, uint32_t *size)
{
    uint32_t from = n->offsets[row], to = n->offsets[row + 1];
    *name = n->text + from;
    *size = to - from;
    return WHERRY_LIKELY(from <= to && to <= n->text_bytes);
}

static int32_t add(names_t *n, uint32_t vertex, const void *name, uint32_t size)
{
    row_t *r = (row_t *)wherry_rows_add(&n->out, size);
    if (!r)
        return n->out.status;
    r->vertex = vertex;
    wherry_rows_put(&n->out, &r->name, name, size);
    return WHERRY_OK;
}

#ifndef FIND

static int32_t answer(names_t *n, const char *list, uint32_t bytes)
{
    uint32_t at = 0, vertex, size;
    int32_t self = wherry_self(), more;
    const uint8_t *name;
    while ((more = vertices_next(list, bytes, &at, &vertex)) > 0) {
        uint64_t local;
        int32_t owner = wherry_owner(0, vertex, &local);
        if (owner < 0)
            return owner;
        if (owner != self || local >= n->rows)
            continue;
        if (!name_of(n, local, &name, &size))
            return WHERRY_ERR_ARGUMENT;
        WHERRY_TRY(add(n, vertex, name, size));
    }
    return more;
}

#else

/* A name that is sought; size + 1, so that 0 is a free slot. */
typedef struct {
    uint32_t from, size1;
} slot_t;

static uint32_t hash_name(const uint8_t *s, uint32_t n)
{
    uint64_t h = n;
    for (; n >= 8; n -= 8, s += 8) {
        uint64_t w;
        __builtin_memcpy(&w, s, 8);
        h = wherry_mix(h ^ w);
    }
    uint64_t rest = 0;
    for (uint32_t i = 0; i < n; i++)
        rest = rest << 8 | s[i];
    return (uint32_t)(wherry_mix(h ^ rest) >> 32);
}

/* The slot of a name, or the free one where it belongs. */
static slot_t *slot_of(slot_t *table, uint32_t mask, const uint8_t *list, const uint8_t *name, uint32_t size)
{
    uint32_t i = hash_name(name, size) & mask;
    for (; table[i].size1; i = (i + 1) & mask)
        if (table[i].size1 == size + 1 && memcmp(list + table[i].from, name, size) == 0)
            break;
    return &table[i];
}

static int32_t answer(names_t *n, const char *text, uint32_t bytes)
{
    const uint8_t *list = (const uint8_t *)text;
    uint32_t lines = 1, slots = 4, size;
    for (uint32_t i = 0; i < bytes; i++)
        lines += list[i] == '\n';
    while (slots < 2 * lines)
        slots *= 2;
    slot_t *table = (slot_t *)wherry_scratch((uint64_t)slots * sizeof *table);
    if (!table)
        return WHERRY_ERR_LIMIT;
    for (uint32_t from = 0, i = 0; i <= bytes; i++)
        if (i == bytes || list[i] == '\n') {
            slot_t *s = slot_of(table, slots - 1, list, list + from, i - from);
            s->from = from;
            s->size1 = i - from + 1;
            from = i + 1;
        }
    wherry_rows_range_t mine;
    int32_t self = wherry_self();
    int ranges = wherry_shard_rows(0, self, &mine) == WHERRY_OK;
    const uint8_t *name;
    for (uint64_t i = 0; i < n->rows; i++) {
        if (!name_of(n, i, &name, &size))
            return WHERRY_ERR_ARGUMENT;
        if (slot_of(table, slots - 1, list, name, size)->size1)
            WHERRY_TRY(add(n, (uint32_t)(ranges ? mine.first + i : (uint64_t)wherry_row(0, self, i)), name, size));
    }
    return WHERRY_OK;
}

#endif

WHERRY_ENTRY(payload, size)
{
    static names_t n;
    const params_t *p = (const params_t *)payload;
    if (size < sizeof *p)
        return WHERRY_ERR_ARGUMENT;
    const char *list = wherry_text(payload, size, p->list);
    if (!list)
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(names_open(&n));
    WHERRY_TRY(answer(&n, list, p->list.size));
    return wherry_rows_reply(&n.out);
}
