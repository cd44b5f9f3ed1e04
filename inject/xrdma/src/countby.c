/* countby: how many rows there are of each value of a column.
 *
 * Parameters {column, row_bytes}, or {column, row_bytes, where, op, value} to count
 * only the rows that match a condition.  Rows {str key, u64 n}, to be merged by
 * key; the keys of an integer column are in decimal, of a column of bytes in hex.
 *
 * The table of values is in scratch and bounded: when it has TABLE_MOST values
 * they are sent as rows and it starts anew, so the same key may come more than
 * once from one element.  A str key above KEY_MOST bytes is an error. */
#include "predicate.h"

#define TABLE_MOST (1u << 20) /* slots; three quarters are used */
#define KEY_MOST 16384u

typedef struct {
    wherry_column_t column;
    uint32_t row_bytes;
    wherry_column_t where; /* column of the condition */
    wherry_str_t op, value;
} params_t;

typedef struct {
    wherry_str_t key;
    uint64_t n;
} row_t;

/* A value: where its text lies, or itself. */
typedef struct {
    union {
        const uint8_t *text;
        uint64_t integer;
    } u;
    uint32_t size; /* of text */
    uint32_t hash;
    uint64_t n; /* 0: the slot is free */
} slot_t;

typedef struct {
    slot_t *slot;
    uint32_t slots, used;
    uint32_t type; /* of the column */
    wherry_rows_t out;
} groups_t;

static uint8_t part[WHERRY_PART_BYTES];

/* Eight bytes at a time, mixed by multiplication. */
static uint32_t hash_text(const uint8_t *s, uint32_t n)
{
    uint64_t h = n;
    for (; n >= 8; n -= 8, s += 8)
        h = wherry_mix(h ^ load_u64(s));
    uint64_t rest = 0;
    for (uint32_t i = 0; i < n; i++)
        rest = rest << 8 | s[i];
    return (uint32_t)(wherry_mix(h ^ rest) >> 32);
}

static int32_t send_groups(groups_t *g)
{
    static const char digits[] = "0123456789abcdef";
    static uint8_t hex[KEY_MOST];
    for (uint32_t i = 0; i < g->slots; i++) {
        slot_t *s = &g->slot[i];
        if (!s->n)
            continue;
        char text[21];
        const void *key = s->u.text;
        uint32_t size = s->size;
        if (!is_text(g->type)) {
            int minus = is_signed(g->type) && (int64_t)s->u.integer < 0;
            text[0] = '-';
            size = (uint32_t)minus + print_u64(text + minus, minus ? 0 - s->u.integer : s->u.integer);
            key = text;
        } else if (g->type != WHERRY_TYPE_STR) {
            for (uint32_t b = 0; b < size; b++) {
                hex[2 * b] = (uint8_t)digits[s->u.text[b] >> 4];
                hex[2 * b + 1] = (uint8_t)digits[s->u.text[b] & 15];
            }
            key = hex;
            size *= 2;
        }
        row_t *r = (row_t *)wherry_rows_add(&g->out, size);
        if (!r)
            return g->out.status;
        r->n = s->n;
        wherry_rows_put(&g->out, &r->key, key, size);
        s->n = 0;
    }
    g->used = 0;
    return WHERRY_OK;
}

static int32_t add_integer(groups_t *g, uint64_t x)
{
    uint32_t mask = g->slots - 1, hash = (uint32_t)(wherry_mix(x) >> 32), i = hash & mask;
    for (; g->slot[i].n; i = (i + 1) & mask)
        if (g->slot[i].u.integer == x) {
            g->slot[i].n++;
            return WHERRY_OK;
        }
    if (g->used >= g->slots - g->slots / 4) {
        WHERRY_TRY(send_groups(g));
        i = hash & mask;
    }
    g->slot[i].u.integer = x;
    g->slot[i].n = 1;
    g->used++;
    return WHERRY_OK;
}

static int32_t add_text(groups_t *g, const uint8_t *text, uint32_t size)
{
    uint32_t mask = g->slots - 1, hash = hash_text(text, size), i = hash & mask;
    for (; g->slot[i].n; i = (i + 1) & mask) {
        slot_t *s = &g->slot[i];
        if (s->hash == hash && s->size == size && memcmp(s->u.text, text, size) == 0) {
            s->n++;
            return WHERRY_OK;
        }
    }
    if (size > KEY_MOST) {
        refuse("a text has more than 16384 bytes, the most that countby takes for a key");
        return WHERRY_ERR_LIMIT;
    }
    if (g->used >= g->slots - g->slots / 4) {
        WHERRY_TRY(send_groups(g));
        i = hash & mask;
    }
    slot_t *s = &g->slot[i];
    s->u.text = text;
    s->size = size;
    s->hash = hash;
    s->n = 1;
    g->used++;
    return WHERRY_OK;
}

/* Groups the rows that are here. */
static int32_t group_here(groups_t *g, const table_t *t, predicate_t *p, wherry_column_t by)
{
    const uint8_t *row = t->row;
    for (uint64_t i = t->here; i; i--, row += t->bytes) {
        const uint8_t *cell = row + by.offset;
        if (!predicate_row(p, row))
            continue;
        if (!is_text(by.type)) {
            WHERRY_TRY(add_integer(g, cell_integer(cell, by.type)));
            continue;
        }
        uint32_t n = by.type - WHERRY_TYPE_BYTES;
        if (by.type == WHERRY_TYPE_STR && !(cell = cell_text(t, cell, &n))) {
            p->broken = 1;
            return WHERRY_OK;
        }
        WHERRY_TRY(add_text(g, cell, n));
    }
    return WHERRY_OK;
}

static int32_t group_rows(groups_t *g, table_t *t, predicate_t *p, wherry_column_t by)
{
    while (!p->broken && table_next(t)) {
        WHERRY_TRY(group_here(g, t, p, by));
        if (by.type > WHERRY_TYPE_BYTES && table_slides(t)) /* the keys lie in the rows, which go */
            WHERRY_TRY(send_groups(g));
    }
    return WHERRY_OK;
}

WHERRY_ENTRY(payload, size)
{
    static predicate_t p;
    table_t t;
    groups_t g;
    const params_t *in = (const params_t *)payload;
    if (size < offsetof(params_t, where))
        return WHERRY_ERR_ARGUMENT;
    WHERRY_TRY(table_open(&t, in->row_bytes));
    WHERRY_TRY(column_check(&t, in->column));
    if (is_float(in->column.type) || column_bytes(in->column) > KEY_MOST / 2)
        return refuse("countby needs a column of integers or text");
    p.op = OP_ANY;
    p.broken = 0;
    if (size >= sizeof *in)
        WHERRY_TRY(predicate_open(&p, &t, in->where, payload, size, in->op, in->value));
    memset(&g, 0, sizeof g);
    g.type = in->column.type;
    for (g.slots = 16; g.slots < TABLE_MOST && g.slots < t.count * 2;)
        g.slots *= 2;
    g.slot = (slot_t *)wherry_scratch((uint64_t)g.slots * sizeof *g.slot);
    if (!g.slot)
        return WHERRY_ERR_LIMIT;
    wherry_rows_init(&g.out, part, sizeof part, sizeof(row_t));
    wherry_rows_string(&g.out, offsetof(row_t, key));
    WHERRY_TRY(group_rows(&g, &t, &p, in->column));
    if (p.broken)
        return refuse("a row's text lies outside the window with text");
    WHERRY_TRY(send_groups(&g));
    return wherry_rows_reply(&g.out);
}
