/* query.h: what the parts of query.c share: the program that package query
 * writes, the registers that it computes with, and memory in scratch. */
#ifndef QUERY_H
#define QUERY_H

#define WHERRY_TEAM_BYTES 49152u
#define WHERRY_TEAM_BATCH 49152u
#ifdef __wasm__ /* every element has vectors and bulk memory instructions (docs/abi.md) */
#pragma clang attribute push(__attribute__((target("simd128,bulk-memory"))), apply_to = function)
#endif
#include "columns.h"
#include "wherry_team.h"
#define memcpy __builtin_memcpy
#define memset __builtin_memset

#define VECTOR 2048u

/* A loop over a vector's rows. An iteration pays for the fuel that it takes (docs/abi.md, What the element does to the code), so several rows
 * are done in one. */
#define EACH(i, n) _Pragma("clang loop unroll_count(8)") for (uint32_t i = 0; i < (n); i++)
#define REGISTERS_MOST 250u
#define KEYS_MOST 64u
#define STATES_MOST 64u
#define PROGRAM_MAGIC 0x32505157u /* "WQP2" */
#define NONE 0xffffu
#define SCRATCH_MOST (384u << 20) /* as query.json says; beside 8 parts of 448 MiB, and of more of them one at a time */

enum { K_INT = 1, K_UINT, K_FLOAT, K_BOOL, K_TEXT, K_DECIMAL = 7 };
enum {
    OP_LOAD = 1, OP_LITERAL, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_NEG,
    OP_EQ2, OP_NE2, OP_LT2, OP_LE2, OP_GT2, OP_GE2, OP_AND, OP_OR, OP_NOT,
    OP_ISNULL, OP_CAST, OP_HASPREFIX, OP_HASSUFFIX, OP_CONTAINS
};
enum { F_COUNT = 1, F_SUM, F_LEAST, F_MOST, F_SPREAD, F_DISTINCT, F_APPROX, F_QUANTILE };
enum { READ_COUNT, READ_SUM, READ_VALUE, READ_MEAN, READ_MIDDLE, READ_DEVIATION, READ_APPROX, READ_QUANTILE };

typedef struct {
    uint32_t magic, registers, constants, filter, rest, keys, states, outputs, orders, pushed;
    uint32_t condition; /* register, or NONE */
    uint32_t rows;      /* 1: rows go out, not groups */
    uint64_t limit;     /* rows or groups to send at most, the first by the order if there is one; 0: all */
    uint32_t text, workers; /* of each element, which share its chunks; 0: one */
} program_t;

typedef struct {
    uint32_t reg, kind;
    uint64_t value, high; /* high: of a decimal */
    uint32_t text_at, text_size;
} constant_t;

typedef struct {
    uint8_t op, kind;
    uint16_t to, a, b;
    uint16_t from;   /* OP_CAST: the argument's kind */
    uint16_t scale;  /* OP_CAST: of a decimal */
    uint32_t column; /* of OP_AND and OP_OR: how many of the instructions that follow are the right side */
} instr_t;

typedef struct {
    uint16_t reg, kind;
    uint32_t zero;
} key_spec_t;

typedef struct {
    uint8_t fn, kind;
    uint16_t reg; /* NONE: rows are counted */
    uint32_t zero;
} state_spec_t;

/* What comes out behind the keys. */
typedef struct {
    uint16_t state;
    uint8_t read, kind; /* the state's */
    uint32_t scale;     /* of decimals */
    double part;        /* of READ_QUANTILE: 0 to 1 */
} output_t;

typedef struct {
    uint32_t column, down; /* keys are columns 0, 1, …; then outputs */
} order_t;

/* A comparison of a column with a value that every row that is left fulfils. */
typedef struct {
    uint32_t column;
    uint16_t op, kind;
    uint64_t value;
} pushed_t;

typedef struct {
    const uint8_t *p;
    uint32_t n;
} text_t;

typedef struct {
    uint64_t low, high;
} wide_t;

typedef struct {
    void *buf;       /* its own room: 16 bytes a row */
    const void *v;   /* where the values are: there, or in a window */
    uint8_t *ok;     /* a byte each */
    uint32_t nulls;  /* 0: none is missing, and ok is not set */
    const uint32_t *words; /* of text that is loaded from a dictionary: each row's number there; else NULL */
    const column_entry_t *dictionary;
    /* Of a column whose values are brought into the register where they are needed there (dense): where the first row's lies, which rows they are of
     * (NULL: one behind the other), and their type. Else raw is NULL. */
    const uint8_t *raw;
    uint32_t ready; /* they are there besides */
    const uint16_t *sel;
    const part_t *part;
    uint32_t type;
    uint8_t *truth;      /* of a condition on text from a dictionary: what it says of each word */
    uint64_t truth_room;
    uint32_t clean;    /* what lies beneath missing values is zero */
    uint32_t constant; /* all rows have the same value */
    uint32_t small;    /* integers whose sums over a chunk fit into 64 bits */
} reg_t;
#define REG_BYTES (VECTOR * 17u)

/* A value: 64 bits in a; of decimals 128; of text where it lies, and its length. */
typedef struct {
    uint64_t a, b;
} value_t;

/* A hash table: entries with the same tag may be what is looked for. */
typedef struct {
    uint32_t tag, at; /* at: an address, 0 for none */
} slot_t;

typedef struct {
    slot_t *slot;
    uint32_t slots, used;
} hash_t;

/* The hashes of a dictionary's words, 0 for one that was not needed yet. */
typedef struct {
    const column_entry_t *dictionary;
    uint64_t *hash;
    uint64_t room;
} word_cache_t;

/* Groups or rows, one behind the other: address of the next such block, and how many there are. */
typedef struct block {
    struct block *next;
    uint32_t used, room;
    uint8_t line[64 - 2 * sizeof(uint32_t) - sizeof(void *)]; /* groups begin where a cache line does: short ones then lie in one */
} block_t;

/* A message that came before the program. */
typedef struct early {
    struct early *next;
    uint32_t size;
} early_t;

/* What is kept between the runs of an invocation at an element. */
typedef struct {
    const uint8_t *program; /* a copy; NULL: it has not come yet */
    uint32_t program_bytes;
    uint32_t total; /* groups */
    uint32_t missed; /* some group misses a key */
    uint64_t top;   /* of scratch in use, from its start */
    uint64_t held;  /* that has been asked for */
    hash_t groups, values;
    block_t *first, *last;
    early_t *early;
    uint64_t rows_read, chunks_read, chunks_skipped, bytes_read;
} keep_t;

/* How groups are found by code in the chunk that is read (codes.h). */
typedef struct {
    uint32_t count; /* of codes; 0: groups are found by hash */
    uint32_t words; /* of the sums of a code: how many rows; then for each state a sum, and how many are missing */
    struct {
        uint32_t column, range, values;
        int64_t least;
    } key[KEYS_MOST];
    struct {
        uint32_t column, at;
        int summed; /* else it goes into the group row by row */
    } state[STATES_MOST];
    void *form;      /* a group that is looked for */
    uint32_t *group; /* by code; 0: not known yet */
    uint64_t *sum;
    uint16_t code[VECTOR], more[VECTOR];
} codes_t;

typedef struct {
    const program_t *p;
    const part_t *part;
    codes_t codes;
    const constant_t *constant;
    const instr_t *filter, *rest;
    const key_spec_t *key;
    const state_spec_t *state;
    const output_t *output;
    const order_t *order;
    const pushed_t *pushed;
    const char *text;
    wherry_team_t team;
    keep_t *keep;
    uint8_t *scratch;
    reg_t reg[REGISTERS_MOST];
    uint32_t key_at[KEYS_MOST], state_at[STATES_MOST]; /* in a group */
    uint32_t stride;                                   /* bytes of a group */
    uint16_t sel[VECTOR + 8];
    uint16_t own[VECTOR]; /* rows of this worker's groups, of several */
    uint64_t hash[VECTOR], missing[VECTOR], wrong[VECTOR];
    uint32_t at[VECTOR];         /* each row's group */
    uint32_t misses;             /* some rows miss a key */
    uint8_t *nobody;             /* a group that no row has */
    uint32_t split;              /* of so many workers each reads all rows, for the groups that are its own; 0: each reads rows of its own */
    uint32_t touched;            /* so that reading ahead is not left out */
    uint64_t *plain[KEYS_MOST];  /* room for words */
    word_cache_t cache[KEYS_MOST];
    const uint64_t *word[KEYS_MOST]; /* each key's values as 64 bits, or hashes of them */
    uint32_t heap_used;
    uint32_t *heap; /* of the first by the order: the last of them first */
    uint64_t sent;
    uint32_t spare; /* where the next row is put together */
    int overflow;
    int passing; /* what is added lies in a message, or in a part that makes room for the next */
    uint32_t filled;
    uint8_t out[WHERRY_PART_BYTES];
} query_t;

static query_t q;

/* ---- Memory in scratch, which is asked for as it is needed. ---- */

#define SCRATCH_STEP (1u << 20)

static void *room(uint64_t bytes)
{
    keep_t *k = q.keep;
    uint64_t top = k->top + wherry_align8(bytes);
    if (top > k->held) {
        uint64_t held = (top + top / 8 + SCRATCH_STEP - 1) & ~(uint64_t)(SCRATCH_STEP - 1);
        if (held > SCRATCH_MOST)
            held = SCRATCH_MOST;
        if (top > held || !wherry_scratch(held))
            return NULL;
        k->held = held;
    }
    void *at = q.scratch + k->top;
    k->top = top;
    return at;
}

static int32_t full(void)
{
    if (q.keep->held + SCRATCH_STEP > SCRATCH_MOST)
        (void)refuse("what the query groups by does not fit into the 384 MiB that a node keeps for it: ask for fewer groups or distinct values (--where), or spread the dataset over more nodes");
    return WHERRY_ERR_LIMIT;
}

/* ---- Output: records, cut into parts anywhere. ---- */

static int32_t put(const void *data, uint32_t n)
{
    const uint8_t *from = data;
    while (n) {
        uint32_t left = sizeof q.out - q.filled, step = n < left ? n : left;
        memcpy(q.out + q.filled, from, step);
        q.filled += step;
        from += step;
        n -= step;
        if (q.filled == sizeof q.out) {
            WHERRY_TRY(wherry_reply_part(q.out, q.filled));
            q.filled = 0;
        }
    }
    return WHERRY_OK;
}

static int32_t put_byte(uint8_t b) { return put(&b, 1); }

/* ---- Values. ---- */

WHERRY_INLINE double as_float(uint64_t x)
{
    double f;
    memcpy(&f, &x, 8);
    return f;
}

WHERRY_INLINE uint64_t as_bits(double f)
{
    uint64_t x;
    memcpy(&x, &f, 8);
    return x;
}

WHERRY_INLINE uint64_t word_at(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

WHERRY_INLINE int same_text(const uint8_t *a, const uint8_t *b, uint32_t n)
{
    if (a == b)
        return 1;
    for (; n >= 8; n -= 8, a += 8, b += 8)
        if (word_at(a) != word_at(b))
            return 0;
    for (; n; n--, a++, b++)
        if (*a != *b)
            return 0;
    return 1;
}

static int text_order(const uint8_t *a, uint32_t an, const uint8_t *b, uint32_t bn)
{
    uint32_t n = an < bn ? an : bn;
    for (; n >= 8 && word_at(a) == word_at(b); n -= 8, a += 8, b += 8)
        ;
    for (; n; n--, a++, b++)
        if (*a != *b)
            return *a < *b ? -1 : 1;
    return (an > bn) - (an < bn);
}

/* NaN comes behind all. */
WHERRY_INLINE int float_before(uint64_t x, uint64_t y)
{
    double a = as_float(x), b = as_float(y);
    return a < b || (b != b && a == a);
}

/* -1, 0 or 1. NaN comes behind all. */
static int value_order(uint32_t kind, value_t x, value_t y)
{
    switch (kind) {
    case K_INT: return ((int64_t)x.a > (int64_t)y.a) - ((int64_t)x.a < (int64_t)y.a);
    case K_FLOAT: {
        double a = as_float(x.a), b = as_float(y.a);
        if (a != a || b != b)
            return (a != a) - (b != b);
        return (a > b) - (a < b);
    }
    case K_TEXT: return text_order((const uint8_t *)(uintptr_t)x.a, (uint32_t)x.b, (const uint8_t *)(uintptr_t)y.a, (uint32_t)y.b);
    case K_DECIMAL:
        if (x.b != y.b)
            return (int64_t)x.b < (int64_t)y.b ? -1 : 1;
    }
    return (x.a > y.a) - (x.a < y.a);
}

static uint64_t hash_text(const uint8_t *s, uint64_t n)
{
    uint64_t h = n, rest = 0;
    for (; n >= 8; n -= 8, s += 8)
        h = wherry_mix(h ^ word_at(s));
    for (; n; n--, s++)
        rest = rest << 8 | *s;
    return wherry_mix(h ^ rest);
}

/* Floats that are equal have equal bits. */
WHERRY_INLINE uint64_t one_zero(uint64_t x)
{
    double f = as_float(x);
    return f == 0 ? 0 : f != f ? 0x7ff8000000000000u : x;
}

WHERRY_INLINE uint64_t hash_value(uint32_t kind, value_t v)
{
    switch (kind) {
    case K_TEXT: return hash_text((const uint8_t *)(uintptr_t)v.a, v.b);
    case K_FLOAT: return wherry_mix(one_zero(v.a));
    case K_DECIMAL: return wherry_mix(wherry_mix(v.a) ^ v.b);
    }
    return wherry_mix(v.a);
}

/* Row i of a register. */
WHERRY_INLINE value_t value_of(uint32_t kind, const reg_t *r, uint32_t i)
{
    value_t v = {0, 0};
    switch (kind) {
    case K_TEXT:
        v.a = (uint64_t)(uintptr_t)((const text_t *)r->v)[i].p;
        v.b = ((const text_t *)r->v)[i].n;
        break;
    case K_DECIMAL:
        memcpy(&v, (const wide_t *)r->v + i, sizeof v);
        break;
    case K_BOOL:
        v.a = ((const uint8_t *)r->v)[i];
        break;
    default:
        v.a = ((const uint64_t *)r->v)[i];
    }
    return v;
}

#endif
