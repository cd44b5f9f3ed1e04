/* wherry.h: write a function that travels.  ABI version 2.
 *
 * A function is one C file without a C library.  Its entry point is
 * wherry_main; it is called once for each branch of an invocation that arrives
 * at an element, with that branch's payload.  It reads and writes the windows
 * of the dataset it runs on where they lie, and answers, moves on to another
 * element, or branches out to several.  It returns WHERRY_OK, or a number that
 * ends the branch with an error.
 *
 *     #include "wherry.h"
 *
 *     // The sum of this element's shard of a u64 array.  Started on every
 *     // element; the caller adds the rows up ("merge": "sum" in the manifest).
 *     WHERRY_ENTRY(payload, size)
 *     {
 *         wherry_window_t w;
 *         WHERRY_TRY(wherry_window_or_empty(0, &w));
 *         const uint64_t *row = w.addr;
 *         uint64_t sum = 0;
 *         for (uint64_t i = 0; i < w.size / sizeof *row; i++)
 *             sum += row[i];
 *         struct { uint32_t rows, zero; uint64_t sum; } part = {1, 0, sum};
 *         return wherry_reply(&part, sizeof part);
 *     }
 *
 *     wherry fn build sum.c -o sum.wfn --manifest sum.json
 *
 * What a function can rely on:
 *   - The payload is readable for the whole run, 8-aligned, and the function's
 *     own: it may write to it.
 *   - Windows are 64 KiB-aligned.  One that is not writable is live: it shows
 *     what its owner writes meanwhile.  A store to it ends the branch.
 *   - Static variables are as declared at every run.  Many kilobytes of them
 *     cost a little at each: large buffers belong into scratch, and what is to
 *     last from run to run has to.
 *   - Scratch is zero when an invocation first asks for it on an element, and
 *     keeps its content between all runs of that invocation there.  These runs
 *     never overlap.  Its address may change between runs: keep offsets in it.
 *   - wherry_reply and wherry_forward end the branch: after them a run can only
 *     return.  A run that returns WHERRY_OK without either has finished with an
 *     empty result.
 *   - Everything is little-endian; records have the layout of a C struct.
 *
 * The same source compiles to WebAssembly, to a relocatable ELF object and to
 * LLVM bitcode: use uint32_t and uint64_t for data, pointers for addresses.
 */
#ifndef WHERRY_H
#define WHERRY_H

#include <stddef.h>
#include <stdint.h>

#define WHERRY_ABI_VERSION 2

/* Status: what a host call returns, and wherry_main.  Negative numbers are the
 * host's; a function's own errors are positive. */
/* Generated from inject/abi: statuses. */
#define WHERRY_OK 0                      /* ok */
#define WHERRY_ERR_ARGUMENT (-1)         /* an argument is out of range */
#define WHERRY_ERR_MEMORY (-2)           /* a pointer or length leaves the function's memory */
#define WHERRY_ERR_RIGHTS (-3)           /* the key does not allow it */
#define WHERRY_ERR_REVOKED (-4)          /* the key was revoked or is of another incarnation */
#define WHERRY_ERR_PEER_LOST (-5)        /* the element is gone */
#define WHERRY_ERR_BACKPRESSURE (-6)     /* a queue is full */
#define WHERRY_ERR_LIMIT (-7)            /* a limit of the function is used up */
#define WHERRY_ERR_DONE (-8)             /* the branch has replied or forwarded already */
#define WHERRY_ERR_DEADLINE (-9)         /* no time is left */
#define WHERRY_ERR_CANCELED (-10)        /* the caller gave up */
#define WHERRY_ERR_NO_WINDOW (-11)       /* no such window here */
#define WHERRY_ERR_UNSUPPORTED (-12)     /* this element does not do that */
#define WHERRY_ERR_OUTCOME_UNKNOWN (-13) /* it may or may not have happened */
#define WHERRY_ERR_FAR (-14)             /* the window is not mapped at this element */
/* End of what is generated. */

/* Operations of wherry_atomic. */
#define WHERRY_ATOMIC_ADD 1
#define WHERRY_ATOMIC_SWAP 2
#define WHERRY_ATOMIC_COMPARE_SWAP 3
#define WHERRY_ATOMIC_AND 4
#define WHERRY_ATOMIC_OR 5
#define WHERRY_ATOMIC_XOR 6

/* Type codes of columns (wherry_column_t). */
#define WHERRY_TYPE_I8 1
#define WHERRY_TYPE_I16 2
#define WHERRY_TYPE_I32 3
#define WHERRY_TYPE_I64 4
#define WHERRY_TYPE_U8 5
#define WHERRY_TYPE_U16 6
#define WHERRY_TYPE_U32 7
#define WHERRY_TYPE_U64 8
#define WHERRY_TYPE_F32 9
#define WHERRY_TYPE_F64 10
#define WHERRY_TYPE_BOOL 11
#define WHERRY_TYPE_STR 12
#define WHERRY_TYPE_BYTES 65536 /* + N: N bytes */

/* ---- How the host calls are reached; the only part that differs by form. ---- */

#ifdef __cplusplus
#define WHERRY_LINK extern "C"
#else
#define WHERRY_LINK extern
#endif

#if defined(__wasm__)
#define WHERRY_CALL(name) \
    __attribute__((import_module("wherry"), import_name(#name))) WHERRY_LINK
#define WHERRY_EXPORT __attribute__((export_name("wherry_main"), visibility("default")))
#else
#define WHERRY_CALL(name) WHERRY_LINK
#define WHERRY_EXPORT __attribute__((visibility("default")))
#endif

#define WHERRY_INLINE static inline __attribute__((always_inline, unused))
#define WHERRY_HELPER static __attribute__((unused))
#define WHERRY_LIKELY(x) __builtin_expect(!!(x), 1)
#define WHERRY_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Defines the entry point; payload and size are the names of its parameters. */
#define WHERRY_ENTRY(payload, size)                                              \
    WHERRY_LINK WHERRY_EXPORT int32_t wherry_main(const void *payload, uint32_t size); \
    int32_t wherry_main(__attribute__((unused)) const void *payload,             \
                        __attribute__((unused)) uint32_t size)

/* Returns from the function with the status of call, unless it is WHERRY_OK. */
#define WHERRY_TRY(call)                         \
    do {                                         \
        int32_t wherry_try_ = (call);            \
        if (WHERRY_UNLIKELY(wherry_try_ != WHERRY_OK)) \
            return wherry_try_;                  \
    } while (0)

/* ---- Host calls. ---- */

/* A range of rows. */
typedef struct {
    uint64_t first;
    uint64_t count;
} wherry_rows_range_t;

/* A window: memory of the dataset in this function's address space. */
typedef struct {
    void *addr;
    uint32_t flags; /* WHERRY_WRITABLE */
    uint64_t size;  /* bytes */
} wherry_window_t;
#define WHERRY_WRITABLE 1u

/* A part of a window: size bytes of it, from its byte first on. */
typedef struct {
    void *addr;
    uint32_t flags; /* WHERRY_WRITABLE */
    uint64_t first;
    uint64_t size;
    uint64_t total; /* bytes of the window */
} wherry_view_t;

typedef struct {
    void *addr;
    uint32_t size;
} wherry_payload_t;

/* A parameter of type "column": where a column lies in a row, and its type. Of
 * a dataset of columns offset is the column's number: see wherry_columns.h. */
typedef struct {
    uint32_t offset;
    uint32_t type; /* WHERRY_TYPE_... */
} wherry_column_t;

/* A field of type "str": offset counts from the payload's (parameters), the
 * part's (results) or the string window's (rows) first byte. */
typedef struct {
    uint32_t offset;
    uint32_t size;
} wherry_str_t;

/* Generated from inject/abi: host calls. */
/* Index of this element in the shard table. */
WHERRY_CALL(self) int32_t wherry_self(void);

/* Number of elements in the shard table. */
WHERRY_CALL(elements) int32_t wherry_elements(void);

/* Index of the element that holds a row of a dataset, or a negative status.
 * Writes the row's index there to local. Dataset 0 is the one that the
 * function was called on; there are no others yet. */
WHERRY_CALL(owner) int32_t wherry_owner(uint32_t dataset, uint64_t row, uint64_t *local);

/* The row of a dataset that an element holds at index local, or a negative
 * status: the inverse of wherry_owner. An element's rows are in ascending
 * order. */
WHERRY_CALL(row) int64_t wherry_row(uint32_t dataset, int32_t element, uint64_t local);

/* Writes the range of a dataset's rows that an element holds, {u64 first,
 * u64 count}. WHERRY_ERR_UNSUPPORTED unless every element holds a range: ask
 * wherry_owner and wherry_row then, or say "ranges": true in the manifest.
 * Status. */
WHERRY_CALL(shard_rows) int32_t wherry_shard_rows(uint32_t dataset, int32_t element,
                                                  wherry_rows_range_t *range);

/* Writes where a window of this element lies, {u32 addr, u32 flags, u64
 * size}; flag bit 0: writable. WHERRY_ERR_LIMIT for one that does not fit
 * into the function's memory: wherry_window_at shows a part of it. Status. */
WHERRY_CALL(window) int32_t wherry_window(uint32_t index, wherry_window_t *window);

/* Writes where the part of a window lies that has the byte at offset, {u32
 * addr, u32 flags, u64 first, u64 size, u64 total}: size bytes from the
 * window's byte first on, of total ones. A window that fits is one part. Of
 * a larger one the part has at least 64 KiB from offset on, or all that
 * there are, and stays until the next window_at of that window. Status. */
WHERRY_CALL(window_at) int32_t wherry_window_at(uint32_t index, uint64_t offset,
                                                wherry_view_t *view);

/* Writes where the payload lies, {u32 addr, u32 size}, the same as the entry
 * point's arguments. Status. */
WHERRY_CALL(payload) int32_t wherry_payload(wherry_payload_t *payload);

/* Address of the invocation's scratch on this element, at least size bytes,
 * or 0 if refused: for its limit, or for want of room. Ask for all of it
 * before anything is sent or written elsewhere: a run that has done nothing
 * yet waits for room, and any other gets 0 if there is none. */
WHERRY_CALL(scratch) void *wherry_scratch(uint64_t size);

/* Ends the branch with these bytes as its result, or as the last part of it.
 * Status. */
WHERRY_CALL(reply) int32_t wherry_reply(const void *data, uint32_t size);

/* Sends a part of the result ahead, of at most 59 KiB (WHERRY_ERR_LIMIT).
 * May wait for credit. Status. */
WHERRY_CALL(reply_part) int32_t wherry_reply_part(const void *data, uint32_t size);

/* Continues this branch on another element, with these bytes as its payload,
 * as a run of a function: 0 is the one that runs. May wait for room. Status. */
WHERRY_CALL(forward) int32_t wherry_forward(uint32_t function, int32_t element,
                                            const void *payload, uint32_t size);

/* Starts another branch of this invocation on an element, which may be this
 * one, as a run of a function: 0 is the one that runs. Waits for room, until
 * the deadline. Status. */
WHERRY_CALL(fork) int32_t wherry_fork(uint32_t function, int32_t element, const void *payload,
                                      uint32_t size);

/* Number, for wherry_forward and wherry_fork, of a function that is this one
 * with these constants, or a negative status. It holds for the rest of the
 * run. WHERRY_ERR_UNSUPPORTED if the manifest names no constants;
 * WHERRY_ERR_ARGUMENT if size is not that of those it names. What was
 * derived before can derive again. */
WHERRY_CALL(derive) int32_t wherry_derive(const void *constants, uint32_t size);

/* Copies the constants with which this function was derived; size is that of
 * those which the manifest names. WHERRY_ERR_UNSUPPORTED if it was not
 * derived. Status. Compilers of bitcode see through this call. */
WHERRY_CALL(constants) int32_t wherry_constants(void *constants, uint32_t size);

/* Number, for wherry_forward and wherry_fork, of a function whose code is
 * this wasm module, of at most 64 KiB, or a negative status. It has the
 * windows, the limits and the ABI version of this one, and no constants. The
 * number holds for the rest of the run. WHERRY_ERR_ARGUMENT if the module
 * breaks a rule of images; what its instructions do wrong is found where it
 * runs first. */
WHERRY_CALL(assemble) int32_t wherry_assemble(const void *code, uint32_t size);

/* Copies bytes from a window of any element. Waits. Status. */
WHERRY_CALL(get) int32_t wherry_get(int32_t element, uint32_t window, uint64_t offset, void *data,
                                    uint32_t size);

/* Copies bytes from a window of an element on the same machine, whose memory
 * is mapped here: it takes as long as a copy does, and waits at most once
 * for each window. Elsewhere nothing is done and the answer is
 * WHERRY_ERR_FAR: to wherry_forward takes one message, to wherry_get two.
 * Status. */
WHERRY_CALL(get_near) int32_t wherry_get_near(int32_t element, uint32_t window, uint64_t offset,
                                              void *data, uint32_t size);

/* Copies bytes to a window of any element. Waits. Status. */
WHERRY_CALL(put) int32_t wherry_put(int32_t element, uint32_t window, uint64_t offset,
                                    const void *data, uint32_t size);

/* An atomic operation on 4 or 8 bytes (width) of a window of any element;
 * offset is a multiple of width. Writes what was there before to old. Waits.
 * Status. */
WHERRY_CALL(atomic) int32_t wherry_atomic(int32_t element, uint32_t window, uint64_t offset,
                                          uint32_t op, uint32_t width, uint64_t operand,
                                          uint64_t compare, uint64_t *old);

/* Writes a line to the element's log: cut off at the run's limit, dropped if
 * the pointer is bad. If the run fails, the start of the last line, 256
 * bytes at most, goes to the caller with its error: it is the place to say
 * why. */
WHERRY_CALL(log) void wherry_log(const char *text, uint32_t size);

/* Wall clock, nanoseconds since 1970. */
WHERRY_CALL(now) uint64_t wherry_now(void);

/* Nanoseconds until the invocation's deadline. */
WHERRY_CALL(remaining) uint64_t wherry_remaining(void);

/* 64 bits that nobody can foresee, other ones each time. */
WHERRY_CALL(random) uint64_t wherry_random(void);

/* End of what is generated. */

#define WHERRY_FORK_WAIT_NS 20000u

/* wherry_fork that waits while the queue to that element is full: for a run that
 * forks more than a few times.  It gives up at the invocation's deadline. */
WHERRY_HELPER int32_t wherry_fork_wait(uint32_t function, int32_t element, const void *payload, uint32_t size)
{
    for (;;) {
        int32_t st = wherry_fork(function, element, payload, size);
        if (WHERRY_LIKELY(st != WHERRY_ERR_BACKPRESSURE) || wherry_remaining() == 0)
            return st;
        /* The element moves on meanwhile: a function's loops let it. */
        for (uint64_t until = wherry_now() + WHERRY_FORK_WAIT_NS; wherry_now() < until;)
            ;
    }
}

/* ---- Memory.  Compilers emit calls of these four by themselves. ---- */

#ifndef WHERRY_NO_MEMORY_FUNCTIONS
#define WHERRY_MEMORY __attribute__((weak, no_builtin))

WHERRY_LINK void *memcpy(void *to, const void *from, size_t n);
WHERRY_LINK void *memmove(void *to, const void *from, size_t n);
WHERRY_LINK void *memset(void *to, int byte, size_t n);
WHERRY_LINK int memcmp(const void *a, const void *b, size_t n);

WHERRY_MEMORY void *memcpy(void *to, const void *from, size_t n)
{
    unsigned char *t = (unsigned char *)to;
    const unsigned char *f = (const unsigned char *)from;
    while (n--)
        *t++ = *f++;
    return to;
}

WHERRY_MEMORY void *memmove(void *to, const void *from, size_t n)
{
    unsigned char *t = (unsigned char *)to;
    const unsigned char *f = (const unsigned char *)from;
    if (t <= f) {
        while (n--)
            *t++ = *f++;
    } else {
        while (n--)
            t[n] = f[n];
    }
    return to;
}

WHERRY_MEMORY void *memset(void *to, int byte, size_t n)
{
    unsigned char *t = (unsigned char *)to;
    while (n--)
        *t++ = (unsigned char)byte;
    return to;
}

WHERRY_MEMORY int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    for (; n; n--, x++, y++)
        if (*x != *y)
            return *x < *y ? -1 : 1;
    return 0;
}
#endif

/* ---- Windows. ---- */

/* As wherry_window, but where an element holds no rows (or none of a graph's
 * edges), and so has no such window, it is one of size 0. */
WHERRY_HELPER int32_t wherry_window_or_empty(uint32_t index, wherry_window_t *window)
{
    int32_t st = wherry_window(index, window);
    if (st != WHERRY_ERR_NO_WINDOW)
        return st;
    window->addr = NULL;
    window->flags = 0;
    window->size = 0;
    return WHERRY_OK;
}

/* Where size bytes of a window lie, from its byte offset on; NULL if it does not
 * have them.  What lies there stays until another part of the window is asked
 * for: copy what is to be kept.  It makes windows of any size look alike, and is
 * about as fast as an array while it stays in one part.
 *
 *     wherry_view_t rows = {0};
 *     for (uint64_t i = 0; (row = wherry_at(0, &rows, i * sizeof *row, sizeof *row)); i++)
 *         ...
 *
 * size is at most WHERRY_VIEW_LEAST. */
#define WHERRY_VIEW_LEAST 65536u

WHERRY_HELPER void *wherry_slide(uint32_t index, wherry_view_t *view, uint64_t offset, uint32_t size)
{
    if (wherry_window_at(index, offset, view) != WHERRY_OK) {
        view->first = view->size = 0;
        return NULL;
    }
    uint64_t at = offset - view->first;
    return size <= view->size - at ? (uint8_t *)view->addr + at : NULL;
}

WHERRY_INLINE void *wherry_at(uint32_t index, wherry_view_t *view, uint64_t offset, uint32_t size)
{
    uint64_t at = offset - view->first;
    if (WHERRY_LIKELY(at < view->size && size <= view->size - at))
        return (uint8_t *)view->addr + at;
    return wherry_slide(index, view, offset, size);
}

/* ---- Parameters. ---- */

/* The text of a "str" parameter, or NULL if it leaves the payload. */
WHERRY_INLINE const char *wherry_text(const void *payload, uint32_t size, wherry_str_t s)
{
    if (s.offset > size || s.size > size - s.offset)
        return NULL;
    return (const char *)payload + s.offset;
}

/* ---- Results made of rows. ----
 *
 * A part is: u32 rows, u32 zero, the rows (records of the result schema, each
 * at a multiple of 8 bytes), then their strings.  The builder fills a buffer, rows from its front and strings
 * from its back, and sends it as a part whenever the next row does not fit:
 *
 *     static uint8_t buffer[WHERRY_PART_BYTES];
 *     wherry_rows_t out;
 *     wherry_rows_init(&out, buffer, sizeof buffer, sizeof(struct row));
 *     wherry_rows_string(&out, offsetof(struct row, name));  // each str field
 *     struct row *r = wherry_rows_add(&out, name_size);      // room for its strings
 *     if (!r) return out.status;
 *     wherry_rows_put(&out, &r->name, name, name_size);
 *     ...
 *     return wherry_rows_reply(&out);                        // the last part
 */

#define WHERRY_PART_BYTES 32768u
#define WHERRY_ROWS_HEAD 8u
#define WHERRY_ROWS_STRINGS 8u

typedef struct {
    uint8_t *buffer;
    uint32_t capacity; /* bytes of buffer */
    uint32_t record;   /* bytes from one row to the next: a multiple of 8 */
    uint32_t rows;     /* in buffer */
    uint32_t heap;     /* bytes of strings at the buffer's end */
    uint32_t strings;  /* str fields of a row, and where they are */
    uint32_t string_at[WHERRY_ROWS_STRINGS];
    int32_t status; /* why wherry_rows_add returned NULL */
} wherry_rows_t;

WHERRY_HELPER void wherry_rows_init(wherry_rows_t *r, void *buffer, uint32_t capacity, uint32_t record)
{
    r->buffer = (uint8_t *)buffer;
    r->capacity = capacity;
    r->record = (record + 7) & ~7u;
    r->rows = r->heap = r->strings = 0;
    r->status = WHERRY_OK;
}

/* Says that rows have a str field at offset. */
WHERRY_HELPER void wherry_rows_string(wherry_rows_t *r, uint32_t offset)
{
    if (r->strings < WHERRY_ROWS_STRINGS)
        r->string_at[r->strings++] = offset;
    else
        r->status = WHERRY_ERR_LIMIT;
}

/* Makes buffer[0, return value) a complete part. */
WHERRY_HELPER uint32_t wherry_rows_seal(wherry_rows_t *r)
{
    uint32_t end = WHERRY_ROWS_HEAD + r->rows * r->record;
    uint32_t total = end + r->heap;
    /* Until now a string's offset was its distance from the buffer's end. */
    for (uint32_t i = 0; i < r->rows; i++) {
        uint8_t *row = r->buffer + WHERRY_ROWS_HEAD + i * r->record;
        for (uint32_t s = 0; s < r->strings; s++) {
            wherry_str_t *str = (wherry_str_t *)(row + r->string_at[s]);
            str->offset = str->size ? total - str->offset : 0;
        }
    }
    if (r->heap)
        memmove(r->buffer + end, r->buffer + r->capacity - r->heap, r->heap);
    ((uint32_t *)r->buffer)[0] = r->rows;
    ((uint32_t *)r->buffer)[1] = 0;
    r->rows = r->heap = 0;
    return total;
}

/* Adds a row, zeroed, with room for heap bytes of strings; NULL on an error,
 * which r->status then tells. */
WHERRY_HELPER void *wherry_rows_add(wherry_rows_t *r, uint32_t heap)
{
    if (r->status != WHERRY_OK)
        return NULL;
    uint32_t most = r->capacity - WHERRY_ROWS_HEAD - r->record;
    if (WHERRY_UNLIKELY(r->capacity < WHERRY_ROWS_HEAD + r->record || heap > most)) {
        r->status = WHERRY_ERR_LIMIT;
        return NULL;
    }
    if (WHERRY_ROWS_HEAD + (r->rows + 1) * r->record + r->heap + heap > r->capacity) {
        r->status = wherry_reply_part(r->buffer, wherry_rows_seal(r));
        if (r->status != WHERRY_OK)
            return NULL;
    }
    uint8_t *row = r->buffer + WHERRY_ROWS_HEAD + r->rows * r->record;
    r->rows++;
    memset(row, 0, r->record);
    return row;
}

/* Stores a string of the row that was added last. */
WHERRY_HELPER void wherry_rows_put(wherry_rows_t *r, wherry_str_t *field, const void *text, uint32_t size)
{
    r->heap += size;
    memcpy(r->buffer + r->capacity - r->heap, text, size);
    field->offset = r->heap;
    field->size = size;
}

/* Ends the branch with what is left as the last part. */
WHERRY_HELPER int32_t wherry_rows_reply(wherry_rows_t *r)
{
    WHERRY_TRY(r->status);
    return wherry_reply(r->buffer, wherry_rows_seal(r));
}

/* ---- Memory from scratch, handed out front to back, never given back. ----
 *
 *     wherry_bump_t b;
 *     if (!wherry_bump_init(&b, total)) return WHERRY_ERR_LIMIT;
 *     uint32_t *queue = wherry_bump(&b, rows * 4);   // 8-aligned, or NULL
 *
 * Allocating the same sizes in the same order in every run of an invocation
 * gives the same memory each time. */

typedef struct {
    uint8_t *base;
    uint64_t size, used;
} wherry_bump_t;

WHERRY_INLINE uint64_t wherry_align8(uint64_t n) { return (n + 7) & ~(uint64_t)7; }

WHERRY_HELPER int wherry_bump_init(wherry_bump_t *b, uint64_t size)
{
    b->base = (uint8_t *)wherry_scratch(size);
    b->size = b->base ? size : 0;
    b->used = 0;
    return b->base != NULL;
}

WHERRY_HELPER void *wherry_bump(wherry_bump_t *b, uint64_t size)
{
    if (size > b->size - b->used || wherry_align8(size) > b->size - b->used)
        return NULL;
    void *p = b->base + b->used;
    b->used += wherry_align8(size);
    return p;
}

/* ---- A set of 64-bit numbers in zeroed memory (say, of scratch). ----
 *
 * Open addressing over slots numbers, slots a power of two.  It refuses to
 * become more than 7/8 full. */

typedef struct {
    uint64_t *slot; /* value + 1; 0 is free */
    uint32_t slots, used;
} wherry_set_t;

WHERRY_INLINE uint64_t wherry_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    return x * 0xd6e8feb86659fd93ull;
}

/* 1: added, 0: was there, -1: full, or value is the one that cannot be kept (all bits set). */
WHERRY_HELPER int wherry_set_add(wherry_set_t *s, uint64_t value)
{
    if (value + 1 == 0 || s->slots == 0)
        return -1;
    uint32_t mask = s->slots - 1;
    uint32_t i = (uint32_t)(wherry_mix(value) >> 32) & mask;
    while (s->slot[i]) {
        if (s->slot[i] == value + 1)
            return 0;
        i = (i + 1) & mask;
    }
    if (s->used >= s->slots - s->slots / 8 || s->used + 1 >= s->slots)
        return -1;
    s->slot[i] = value + 1;
    s->used++;
    return 1;
}

WHERRY_HELPER int wherry_set_has(const wherry_set_t *s, uint64_t value)
{
    if (value + 1 == 0 || s->slots == 0)
        return 0;
    uint32_t mask = s->slots - 1;
    for (uint32_t i = (uint32_t)(wherry_mix(value) >> 32) & mask; s->slot[i]; i = (i + 1) & mask)
        if (s->slot[i] == value + 1)
            return 1;
    return 0;
}

/* ---- Bitmaps. ---- */

WHERRY_INLINE uint64_t wherry_bits_bytes(uint64_t bits) { return (bits + 63) / 64 * 8; }

/* Sets a bit; 1 if it was clear. */
WHERRY_INLINE int wherry_bits_set(uint64_t *bits, uint64_t i)
{
    uint64_t bit = 1ull << (i & 63);
    if (bits[i >> 6] & bit)
        return 0;
    bits[i >> 6] |= bit;
    return 1;
}

#endif
