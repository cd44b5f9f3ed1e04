/* query: filters, projects, groups and aggregates columns by a program that
 * package query writes.
 *
 * Rows go through in vectors of VECTOR (vectors.h).  First the condition: it
 * gives a list of the rows that are left.  Columns that are loaded after it are gathered
 * by that list, so everything behind works on dense vectors.  Rows are sent as
 * they are, or the first by an order are kept.
 *
 * Groups are in a hash table in scratch (groups.h).  Each belongs to one
 * element, by its hash: when all rows are read, elements send each other what they know of the
 * others' groups (a shuffle, wherry_team.h), put it together, and each answers
 * with its own: all, or the first of them.  So whoever asked adds nothing up. */
#include "answer.h"

#define EXCHANGE 1u /* a step: groups go to their elements */

/* ---- The program. ---- */

static int32_t program_open(const uint8_t *payload, uint32_t size)
{
    const program_t *p = (const program_t *)payload;
    if (size < sizeof *p || p->magic != PROGRAM_MAGIC)
        return refuse("the payload is no query: use wherry query, or package query");
    if (p->registers > REGISTERS_MOST || p->keys > KEYS_MOST || p->states > STATES_MOST || p->outputs > STATES_MOST || p->orders > KEYS_MOST + STATES_MOST || p->constants > REGISTERS_MOST ||
        p->filter > 10000 || p->rest > 10000 || p->pushed > 10000 || p->limit > UINT32_MAX)
        return refuse("the query is too long: it has more parts than 250 registers, 64 keys and 64 aggregates hold");
    q.p = p;
    q.constant = (const constant_t *)(p + 1);
    q.filter = (const instr_t *)(q.constant + p->constants);
    q.rest = q.filter + p->filter;
    q.key = (const key_spec_t *)(q.rest + p->rest);
    q.state = (const state_spec_t *)(q.key + p->keys);
    q.output = (const output_t *)(q.state + p->states);
    q.order = (const order_t *)(q.output + p->outputs);
    q.pushed = (const pushed_t *)(q.order + p->orders);
    q.text = (const char *)(q.pushed + p->pushed);
    if ((const uint8_t *)q.text + p->text != payload + size)
        return refuse("the query is cut off");
    return WHERRY_OK;
}

static int32_t damaged(void) { return refuse("the query is damaged"); }

static int32_t registers_check(const instr_t *in, uint32_t count)
{
    for (; count; count--, in++) {
        if (in->to >= q.p->registers || in->a >= q.p->registers || in->b >= q.p->registers)
            return damaged();
        if (in->op != OP_AND && in->op != OP_OR)
            continue;
        if (in->column >= count)
            return damaged();
        WHERRY_TRY(registers_check(in + 1, in->column));
        count -= in->column;
        in += in->column;
    }
    return WHERRY_OK;
}

static int32_t program_check(void)
{
    WHERRY_TRY(registers_check(q.filter, q.p->filter));
    WHERRY_TRY(registers_check(q.rest, q.p->rest));
    for (uint32_t k = 0; k < q.p->keys; k++)
        if (q.key[k].reg >= q.p->registers)
            return damaged();
    for (uint32_t k = 0; k < q.p->states; k++)
        if (q.state[k].reg == NONE ? q.state[k].fn != F_COUNT : q.state[k].reg >= q.p->registers)
            return damaged();
    for (uint32_t k = 0; k < q.p->outputs; k++)
        if (q.output[k].state >= q.p->states)
            return damaged();
    for (uint32_t k = 0; k < q.p->orders; k++)
        if (q.order[k].column >= q.p->keys + q.p->outputs)
            return damaged();
    if (q.p->condition != NONE && q.p->condition >= q.p->registers)
        return damaged();
    return WHERRY_OK;
}

static int32_t constants_fill(void)
{
    for (uint32_t c = 0; c < q.p->constants; c++) {
        const constant_t *k = q.constant + c;
        if (k->reg >= q.p->registers || k->text_at > q.p->text || k->text_size > q.p->text - k->text_at)
            return damaged();
        void *v = q.reg[k->reg].buf;
        q.reg[k->reg].constant = 1;
        text_t t = {(const uint8_t *)q.text + k->text_at, k->text_size};
        for (uint32_t i = 0; i < VECTOR; i++)
            if (k->kind == K_TEXT)
                ((text_t *)v)[i] = t;
            else if (k->kind == K_BOOL)
                ((uint8_t *)v)[i] = (uint8_t)k->value;
            else if (k->kind == K_DECIMAL)
                ((wide_t *)v)[i] = (wide_t){k->value, k->high};
            else
                ((uint64_t *)v)[i] = k->value;
    }
    return WHERRY_OK;
}

/* Keeps a copy of the program, and makes room for registers. */
static int32_t prepare(const uint8_t *payload, uint32_t size)
{
    uint8_t *copy = room(size);
    if (!copy)
        return full();
    memcpy(copy, payload, size);
    WHERRY_TRY(program_open(copy, size));
    WHERRY_TRY(program_check());
    groups_layout();
    list_open();
    uint8_t *at = room((uint64_t)q.p->registers * REG_BYTES + (uint64_t)q.p->keys * VECTOR * 8 + q.stride);
    if (!at)
        return full();
    for (uint32_t i = 0; i < q.p->registers; i++, at += REG_BYTES) {
        q.reg[i].buf = at;
        q.reg[i].v = at;
        q.reg[i].ok = at + VECTOR * 16;
    }
    for (uint32_t k = 0; k < q.p->keys; k++, at += VECTOR * 8)
        q.plain[k] = (uint64_t *)at;
    q.nobody = at;
    memset(at, 0, q.stride);
    WHERRY_TRY(constants_fill());
    if (q.p->rows)
        return chooses() ? heap_open() : WHERRY_OK;
    q.keep->program = copy;
    q.keep->program_bytes = size;
    if (q.p->keys)
        return codes_prepare();
    WHERRY_TRY(only_group());
    for (uint32_t i = 0; i < VECTOR; i++)
        q.at[i] = (uint32_t)(uintptr_t)(q.keep->first + 1);
    return WHERRY_OK;
}

/* ---- Chunks. ---- */

/* Whether no row of a chunk can be left, by its bounds. */
static int skipped(const part_t *part, const chunk_head_t *chunk)
{
    for (uint32_t i = 0; i < q.p->pushed; i++) {
        const pushed_t *t = q.pushed + i;
        if (t->column >= part->head->columns)
            continue;
        const chunk_entry_t *e = chunk_column(chunk, t->column);
        if (e->nulls == chunk->rows)
            return 1;
        if (!(e->flags & BOUNDS_GIVEN))
            continue;
        value_t v = {t->value, 0};
        int least = value_order(t->kind, (value_t){e->least, 0}, v), most = value_order(t->kind, (value_t){e->most, 0}, v);
        switch (t->op) {
        case OP_EQ2:
            if (least > 0 || most < 0)
                return 1;
            break;
        case OP_LT2:
            if (least >= 0)
                return 1;
            break;
        case OP_LE2:
            if (least > 0)
                return 1;
            break;
        case OP_GT2:
            if (most <= 0)
                return 1;
            break;
        case OP_GE2:
            if (most < 0)
                return 1;
        }
    }
    return 0;
}

/* The rows of a vector for which the condition is true. */
static uint32_t selected(uint32_t n)
{
    const reg_t *r = q.reg + q.p->condition;
    return list_rows(q.sel, r->v, r->nulls ? r->ok : NULL, n);
}

/* Whether enough rows were sent. */
WHERRY_INLINE int enough(void) { return q.p->rows && q.p->limit && !q.p->orders && q.sent >= q.p->limit; }

/* Of fewer rows than one in MASK_LEAST a list is made. */
#define MASK_LEAST 8u

/* Whether a chunk is only asked how many rows are left, and for sums of whole numbers that lie there as they are added up. Then no list of the rows is needed. */
static int maskable(const part_t *part, const chunk_head_t *chunk)
{
    if (q.p->keys || q.p->rows || q.p->condition == NONE || chunk->rows > 1u << 17)
        return 0;
    uint32_t loads = 0;
    for (const instr_t *in = q.rest; in < q.rest + q.p->rest; in++) {
        if (in->op != OP_LOAD || in->column >= part->head->columns)
            return 0;
        uint32_t type = part->column[in->column].type;
        if ((type != WHERRY_TYPE_I64 && type != WHERRY_TYPE_U64) || !small(in->kind, chunk_column(chunk, in->column)))
            return 0;
    }
    for (uint32_t k = 0; k < q.p->states; k++) {
        if (q.state[k].fn != F_COUNT && (q.state[k].fn != F_SUM || q.state[k].kind > K_UINT))
            return 0;
        const instr_t *in = q.rest;
        while (in < q.rest + q.p->rest && in->to != q.state[k].reg)
            in++;
        loads += q.state[k].reg == NONE || in < q.rest + q.p->rest;
    }
    return loads == q.p->states;
}

/* Adds up the rows of a vector for which mask is 1: left of n. */
static int32_t add_masked(const part_t *part, const chunk_head_t *chunk, uint32_t base, const uint8_t *mask, uint32_t left, uint32_t n)
{
    WHERRY_TRY(execute(q.rest, q.p->rest, part, chunk, base, NULL, n));
    for (uint32_t k = 0; k < q.p->states; k++) {
        uint64_t *s = state_of((uint32_t)(uintptr_t)(q.keep->first + 1), k);
        const reg_t *r = q.state[k].reg == NONE ? NULL : q.reg + q.state[k].reg;
        s[0] += r && r->nulls ? ones(mask, r->ok, n) : left;
        if (q.state[k].fn == F_COUNT)
            continue;
        uint64_t sum = sum_masked(r->raw, mask, n); /* what lies beneath missing values is zero */
        (void)add_wide(s + 1, sum, q.state[k].kind == K_INT ? (uint64_t)((int64_t)sum >> 63) : 0);
    }
    return WHERRY_OK;
}

/* Adds up a vector without a list of its rows, where its condition leaves many. done: it is. */
static int32_t scan_masked(const part_t *part, const chunk_head_t *chunk, uint32_t base, uint32_t n, int *done)
{
    const reg_t *r = q.reg + q.p->condition;
    const uint8_t *mask = r->v;
    uint32_t left = ones(mask, r->nulls ? r->ok : NULL, n);
    *done = left >= n / MASK_LEAST;
    if (!*done)
        return WHERRY_OK;
    if (r->nulls) {
        uint8_t *both = (uint8_t *)q.wrong;
        for (uint32_t i = 0; i < n; i += 16)
            *(lanes_t *)(both + i) = *(const lanes_t *)(mask + i) & *(const lanes_t *)(r->ok + i);
        mask = both;
    }
    return add_masked(part, chunk, base, mask, left, n);
}

static int32_t scan_chunk(const part_t *part, const chunk_head_t *chunk)
{
    int masks = maskable(part, chunk);
    q.part = part;
    if (q.p->keys && !q.p->rows && !q.split)
        codes_open(part, chunk);
    for (uint32_t base = 0; base < chunk->rows && !enough(); base += VECTOR) {
        uint32_t n = (uint32_t)chunk->rows - base < VECTOR ? (uint32_t)chunk->rows - base : VECTOR;
        const uint16_t *sel = NULL;
        q.keep->rows_read += n;
        if (q.p->condition != NONE) {
            uint32_t all = n;
            int done = 0;
            WHERRY_TRY(execute(q.filter, q.p->filter, part, chunk, base, NULL, n));
            if (masks)
                WHERRY_TRY(scan_masked(part, chunk, base, n, &done));
            if (done)
                continue;
            n = selected(n);
            if (n < all)
                sel = q.sel;
        }
        if (!n)
            continue;
        if (q.p->rows && q.p->limit && !q.p->orders && n > q.p->limit - q.sent)
            n = (uint32_t)(q.p->limit - q.sent);
        WHERRY_TRY(execute(q.rest, q.p->rest, part, chunk, base, sel, n));
        if (q.p->rows) {
            WHERRY_TRY(put_rows(n));
            continue;
        }
        if (q.codes.count) {
            WHERRY_TRY(codes_update(n));
            continue;
        }
        if (q.p->keys) {
            hash_keys(n);
            if (q.split)
                n = own_rows(n, sel);
            WHERRY_TRY(find_groups(n));
        }
        WHERRY_TRY(update_states(n));
    }
    return codes_close();
}

/* ---- The rows of one worker of several. ---- */

#define SAMPLE_VECTORS 8u
#define SAMPLE_BITS (1u << 17)

/* What a worker does with the chunks that are not skipped. */
typedef struct {
    uint32_t first, end;     /* reads those: its own */
    uint32_t sampled;        /* not 0: looks at some of so many vectors, and reads none */
    uint32_t kept, skipped;  /* how many chunks there were */
    uint32_t vectors;        /* of those that were kept */
    uint32_t rows, distinct; /* of a sample: how many were left of it, and about how many groups they have */
} chunks_t;

/* Counts the groups of a vector: bits of q.out, which nothing is in yet, stand for hashes. */
static int32_t sample_vector(const part_t *part, const chunk_head_t *chunk, uint32_t base, chunks_t *count)
{
    _Static_assert(sizeof q.out >= SAMPLE_BITS / 8, "no room for a sample");
    uint32_t n = (uint32_t)chunk->rows - base < VECTOR ? (uint32_t)chunk->rows - base : VECTOR;
    uint64_t bytes = q.keep->bytes_read;
    const uint16_t *sel = NULL;
    if (q.p->condition != NONE) {
        WHERRY_TRY(execute(q.filter, q.p->filter, part, chunk, base, NULL, n));
        n = selected(n);
        sel = q.sel;
    }
    if (n) {
        WHERRY_TRY(execute(q.rest, q.p->rest, part, chunk, base, sel, n));
        hash_keys(n);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *at = q.out + tag_of(q.hash[i]) % SAMPLE_BITS / 8, bit = (uint8_t)(1u << (tag_of(q.hash[i]) & 7));
        count->distinct += !(*at & bit);
        *at |= bit;
    }
    count->rows += n;
    q.keep->bytes_read = bytes;
    return WHERRY_OK;
}

/* Looks at those vectors of a chunk that are in the sample: as far apart as can be. Groups that have codes are few, and need not be counted. */
static int32_t sample(const part_t *part, const chunk_head_t *chunk, chunks_t *count)
{
    codes_open(part, chunk);
    uint32_t codes = q.codes.count;
    q.codes.count = 0;
    if (codes && codes < chunk->rows / 4)
        return WHERRY_OK;
    for (uint32_t base = 0; base < chunk->rows; base += VECTOR) {
        uint64_t v = (uint64_t)(count->vectors + base / VECTOR) * SAMPLE_VECTORS;
        if (v / count->sampled != (v + SAMPLE_VECTORS) / count->sampled)
            WHERRY_TRY(sample_vector(part, chunk, base, count));
    }
    return WHERRY_OK;
}

/* Reads a chunk, of which the counters tell only if it is this worker's. */
static int32_t read_chunk(const part_t *part, const chunk_head_t *chunk, int own)
{
    uint64_t rows = q.keep->rows_read, bytes = q.keep->bytes_read;
    WHERRY_TRY(scan_chunk(part, chunk));
    if (own) {
        q.keep->chunks_read++;
        return WHERRY_OK;
    }
    q.keep->rows_read = rows;
    q.keep->bytes_read = bytes;
    return WHERRY_OK;
}

/* Goes through the chunks. */
static int32_t chunks(chunks_t *c)
{
    part_t part;
    for (uint32_t i = 0;; i++) {
        int32_t st = part_open(&part, i);
        if (st == WHERRY_ERR_NO_WINDOW && i > 0)
            return WHERRY_OK;
        if (st != WHERRY_OK)
            return st;
        q.passing = part.passes;
        for (uint32_t k = 0; k < part.head->chunks && !enough(); k++) {
            const chunk_head_t *chunk = part_chunk(&part, k);
            if (skipped(&part, chunk)) {
                c->skipped++;
                continue;
            }
            uint32_t n = c->kept++;
            int own = n >= c->first && n < c->end;
            if (c->sampled)
                WHERRY_TRY(sample(&part, chunk, c));
            c->vectors += ((uint32_t)chunk->rows + VECTOR - 1) / VECTOR;
            if (own || (q.split && !c->sampled))
                WHERRY_TRY(read_chunk(&part, chunk, own));
        }
    }
}

/* Whether the rows have so many groups that each worker had better read all rows for its own groups: a row costs a few nanoseconds then, and a group that two
 * workers know about a microsecond. All workers of an element find the same. */
static int32_t many_groups(uint32_t vectors, uint32_t *many)
{
    chunks_t c = {.sampled = vectors};
    *many = 0;
    if (!q.p->keys || q.p->rows || vectors < SAMPLE_VECTORS)
        return WHERRY_OK;
    memset(q.out, 0, SAMPLE_BITS / 8);
    WHERRY_TRY(chunks(&c));
    *many = c.rows >= VECTOR && c.distinct > c.rows / 2;
    return WHERRY_OK;
}

/* The chunks of an element are shared by its workers: each reads as many, one behind the other, so that rows keep their order. Or each reads all. */
static int32_t scan(void)
{
    uint32_t workers = workers_of(), self = q.team.self % workers, many = 0;
    chunks_t own = {.end = UINT32_MAX};
    if (workers > 1) {
        chunks_t all = {0};
        WHERRY_TRY(chunks(&all));
        own.first = (uint32_t)((uint64_t)all.kept * self / workers);
        own.end = (uint32_t)((uint64_t)all.kept * (self + 1) / workers);
        WHERRY_TRY(many_groups(all.vectors, &many));
        q.split = many ? workers : 0;
    }
    WHERRY_TRY(chunks(&own));
    if (!self) /* of those that are skipped the first worker tells */
        q.keep->chunks_skipped = own.skipped;
    return WHERRY_OK;
}

/* ---- The exchange. ---- */

/* What elements send each other: a group's words, the texts of its keys and states, and for one state what it has besides. All of it fills whole words. */
enum { X_GROUP, X_MEMBER, X_LEVEL, X_PARTS };

typedef struct {
    uint32_t bytes; /* in all */
    uint16_t what, state;
    uint32_t level, count;
} exchange_t;

/* Writes a group into q.out, and returns its bytes; 0 if they are too many. */
static uint32_t pack(uint32_t group, exchange_t x, const void *more, uint32_t bytes)
{
    uint32_t at = sizeof x + q.stride;
    memcpy(q.out + sizeof x, (const void *)(uintptr_t)group, q.stride);
    for (uint32_t k = 0; k < q.p->keys + (x.what == X_GROUP ? q.p->states : 0); k++) {
        const uint64_t *t = k < q.p->keys ? key_of(group, k) : state_of(group, k - q.p->keys) + 1;
        const state_spec_t *s = k < q.p->keys ? NULL : q.state + (k - q.p->keys);
        if (s ? s->kind != K_TEXT || (s->fn != F_LEAST && s->fn != F_MOST) : q.key[k].kind != K_TEXT)
            continue;
        if (t[1] > WHERRY_TEAM_BATCH - at)
            return 0;
        memcpy(q.out + at, (const void *)(uintptr_t)t[0], (size_t)t[1]);
        at += (uint32_t)t[1];
    }
    at = (uint32_t)wherry_align8(at);
    if (at + bytes > WHERRY_TEAM_BATCH)
        return 0;
    memcpy(q.out + at, more, bytes);
    x.bytes = (uint32_t)wherry_align8(at + bytes);
    if (x.bytes > WHERRY_TEAM_BATCH)
        return 0;
    memcpy(q.out, &x, sizeof x);
    return x.bytes;
}

static int32_t pass(uint32_t group, exchange_t x, const void *more, uint32_t bytes)
{
    uint32_t n = pack(group, x, more, bytes), owner = home_of(group);
    if (!n)
        return refuse("a group's texts have more than the 48 KiB that elements can send each other: group by shorter text, or aggregate what is shorter");
    return wherry_shuffle(&q.team, EXCHANGE, owner, q.out, n);
}

WHERRY_INLINE int foreign(uint32_t group) { return home_of(group) != q.team.self; }

static int32_t pass_group(uint32_t group)
{
    WHERRY_TRY(pass(group, (exchange_t){0, X_GROUP, 0, 0, 0}, NULL, 0));
    for (uint32_t k = 0; k < q.p->states; k++) {
        const uint64_t *s = state_of(group, k);
        if (q.state[k].fn == F_APPROX && s[0])
            WHERRY_TRY(pass(group, (exchange_t){0, X_PARTS, (uint16_t)k, 0, 0}, (const void *)(uintptr_t)s[1], PARTS));
        if (q.state[k].fn != F_QUANTILE || !s[0])
            continue;
        const sketch_t *sketch = (const sketch_t *)(uintptr_t)s[1];
        for (uint32_t l = 0; l < SKETCH_LEVELS; l++)
            if (sketch->used[l])
                WHERRY_TRY(pass(group, (exchange_t){0, X_LEVEL, (uint16_t)k, l, sketch->used[l]}, sketch->value[l], sketch->used[l] * 8u));
    }
    return WHERRY_OK;
}

/* Sends each element what is known here of its groups. */
static int32_t pass_all(void)
{
    for (const block_t *b = q.keep->first; b; b = b->next)
        for (uint32_t i = 0; i < b->used; i++) {
            uint32_t group = (uint32_t)(uintptr_t)(b + 1) + i * q.stride;
            if (foreign(group))
                WHERRY_TRY(pass_group(group));
        }
    const hash_t *h = &q.keep->values;
    for (uint32_t s = 0; s < h->slots; s++) {
        const member_t *m = (const member_t *)(uintptr_t)h->slot[s].at;
        if (!m || !foreign(m->group))
            continue;
        int text = q.state[m->state].kind == K_TEXT;
        exchange_t x = {0, X_MEMBER, (uint16_t)m->state, 0, text ? (uint32_t)m->v.b : 0};
        WHERRY_TRY(text ? pass(m->group, x, (const void *)(uintptr_t)m->v.a, x.count) : pass(m->group, x, &m->v, sizeof m->v));
    }
    return WHERRY_OK;
}

/* Adds what another element knows of a group to what is known here, but for what comes in records of its own. */
static int32_t add_state(uint32_t group, uint32_t from, uint32_t k)
{
    const state_spec_t *spec = q.state + k;
    uint64_t *s = state_of(group, k);
    const uint64_t *t = state_of(from, k);
    switch (spec->fn) {
    case F_DISTINCT: return WHERRY_OK; /* counted by its members */
    case F_LEAST:
    case F_MOST:
        if (!t[0])
            return WHERRY_OK;
        WHERRY_TRY(update(k, group, (value_t){t[1], kind_words(spec->kind) == 2 ? t[2] : 0}));
        s[0] += t[0] - 1;
        return WHERRY_OK;
    case F_SPREAD: { /* Chan, Golub and LeVeque: updating formulae and a pairwise algorithm, 1979 */
        double n = (double)s[0], m = (double)t[0], mean = as_float(s[1]), d = as_float(t[1]) - mean;
        if (!t[0])
            return WHERRY_OK;
        s[1] = as_bits(mean + d * m / (n + m));
        s[2] = as_bits(as_float(s[2]) + as_float(t[2]) + d * d * n * m / (n + m));
        break;
    }
    case F_SUM:
        if (spec->kind == K_FLOAT)
            s[1] = as_bits(as_float(s[1]) + as_float(t[1]));
        else if (add_wide(s + 1, t[1], t[2]) && spec->kind == K_DECIMAL)
            return refuse("a sum of decimals does not fit into 128 bits: use sum(f64(…))");
    }
    s[0] += t[0];
    return WHERRY_OK;
}

static int32_t add_record(const exchange_t *x, uint32_t from, const uint8_t *more, const uint8_t *end)
{
    uint32_t group = group_here((const group_t *)(uintptr_t)from), left = (uint32_t)(end - more);
    if (!group)
        return full();
    if (x->what == X_GROUP) {
        for (uint32_t k = 0; k < q.p->states; k++)
            WHERRY_TRY(add_state(group, from, k));
        return WHERRY_OK;
    }
    uint32_t fn = x->state < q.p->states ? q.state[x->state].fn : 0;
    uint64_t *s = state_of(group, x->state);
    if (x->what == X_MEMBER && fn == F_DISTINCT) {
        int text = q.state[x->state].kind == K_TEXT;
        if (left < (text ? x->count : sizeof(value_t)))
            return damaged();
        return member_add(group, x->state, text ? (value_t){(uint64_t)(uintptr_t)more, x->count} : *(const value_t *)more);
    }
    if (x->what == X_PARTS && fn == F_APPROX && left >= PARTS) {
        uint8_t *parts = sketch_of(s, PARTS);
        for (uint32_t i = 0; parts && i < PARTS; i++)
            parts[i] = parts[i] > more[i] ? parts[i] : more[i];
        return parts ? WHERRY_OK : full();
    }
    if (x->what != X_LEVEL || fn != F_QUANTILE || left / 8 < x->count)
        return damaged();
    sketch_t *sketch = sketch_of(s, sizeof *sketch);
    if (!sketch)
        return full();
    for (uint32_t i = 0; i < x->count; i++)
        WHERRY_TRY(sketch_add(sketch, x->level, ((const uint64_t *)more)[i]));
    return WHERRY_OK;
}

/* Takes in what another element sent. The texts of a record lie behind its words, and their places are put in. */
static int32_t take(const uint8_t *data, uint32_t size)
{
    q.passing = 1;
    for (const uint8_t *p = data; p < data + size;) {
        const exchange_t *x = (const exchange_t *)p;
        uint32_t left = (uint32_t)(data + size - p), from = (uint32_t)(uintptr_t)(x + 1);
        if (left < sizeof *x + q.stride || x->bytes > left || x->bytes < sizeof *x + q.stride || x->bytes % 8)
            return damaged();
        const uint8_t *text = p + sizeof *x + q.stride, *end = p + x->bytes;
        for (uint32_t k = 0; k < q.p->keys + (x->what == X_GROUP ? q.p->states : 0); k++) {
            uint64_t *t = k < q.p->keys ? key_of(from, k) : state_of(from, k - q.p->keys) + 1;
            const state_spec_t *s = k < q.p->keys ? NULL : q.state + (k - q.p->keys);
            if (s ? s->kind != K_TEXT || (s->fn != F_LEAST && s->fn != F_MOST) : q.key[k].kind != K_TEXT)
                continue;
            if (t[1] > (uint64_t)(end - text))
                return damaged();
            t[0] = (uint64_t)(uintptr_t)text;
            text += t[1];
        }
        text = (const uint8_t *)(uintptr_t)wherry_align8((uintptr_t)text);
        WHERRY_TRY(add_record(x, from, text, end));
        p = end;
    }
    q.passing = 0;
    return WHERRY_OK;
}

/* A message of the exchange. One that comes before the program is kept until then. */
static int32_t exchange(void)
{
    keep_t *k = q.keep;
    if (!k->program) {
        early_t *e = room(sizeof *e + q.team.size);
        if (!e)
            return full();
        *e = (early_t){k->early, q.team.size};
        memcpy(e + 1, q.team.data, q.team.size);
        k->early = e;
        return WHERRY_OK;
    }
    WHERRY_TRY(program_open(k->program, k->program_bytes));
    groups_layout();
    WHERRY_TRY(take(q.team.data, q.team.size));
    if (!q.team.last)
        return WHERRY_OK;
    WHERRY_TRY(put_groups());
    WHERRY_TRY(put_end());
    return wherry_reply(q.out, q.filled);
}

WHERRY_ENTRY(payload, size)
{
    uint64_t own = WHERRY_TEAM_STEPS * sizeof(wherry_team_tally_t) + sizeof(keep_t) + 8;
    WHERRY_TRY(wherry_team_open(&q.team, payload, size, sizeof(keep_t), wherry_elements() > 1 ? WHERRY_TEAM_SHUFFLES : 0));
    q.keep = q.team.state;
    q.scratch = (uint8_t *)q.team.tally;
    if (!q.keep->top) {
        q.keep->top = wherry_align8(own + (q.team.batch ? q.team.elements * (sizeof *q.team.batch + WHERRY_TEAM_BATCH) : 0));
        q.keep->held = q.keep->top;
    }
    if (q.team.step == EXCHANGE)
        return exchange();
    WHERRY_TRY(prepare(payload, size));
    WHERRY_TRY(scan());
    if (q.p->rows) {
        for (uint32_t i = 0; i < q.heap_used; i++)
            WHERRY_TRY(put_record(q.heap[i]));
    } else if (q.team.elements > 1) {
        WHERRY_TRY(pass_all());
        for (const early_t *e = q.keep->early; e; e = e->next)
            WHERRY_TRY(take((const uint8_t *)(e + 1), e->size));
        return wherry_shuffle_close(&q.team, EXCHANGE);
    } else
        WHERRY_TRY(put_groups());
    WHERRY_TRY(put_end());
    return wherry_reply(q.out, q.filled);
}
#ifdef __wasm__
#pragma clang attribute pop
#endif
