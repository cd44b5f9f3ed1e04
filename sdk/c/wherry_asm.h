/* wherry_asm.h: write a WebAssembly function while running, and send it on.
 *
 *     #include "wherry.h"
 *     #include "wherry_asm.h"
 *
 *     static wherry_asm_t a;                              // code goes in here
 *     wherry_asm_begin(&a, 64);                           // its own memory: 64 bytes, zero at every run
 *     uint32_t reply = wherry_asm_import(&a, "reply", "ii", "i");
 *     uint32_t twice = wherry_asm_local(&a, WASM_I64);
 *     wherry_asm_i32(&a, 0);                              // an address for the store below
 *     wherry_asm_get(&a, WHERRY_ASM_PAYLOAD);
 *     wherry_asm_load(&a, WASM_I64_LOAD, 0);
 *     wherry_asm_tee(&a, twice);
 *     wherry_asm_get(&a, twice);
 *     wherry_asm_op(&a, WASM_I64_ADD);
 *     wherry_asm_store(&a, WASM_I64_STORE, 0);
 *     wherry_asm_i32(&a, 0);
 *     wherry_asm_i32(&a, 8);
 *     wherry_asm_call(&a, reply);                         // its status is what the function returns
 *     int32_t f = wherry_asm_end(&a);
 *     return f < 0 ? f : wherry_fork_wait(f, element, payload, size);
 *
 * What is written is the body of wherry_main, a stack machine's: operands first, then the operation.  The function has the
 * maker's windows and limits (docs/codegen.md).  Whoever writes nonsense hears so from wherry_asm_end, and its caller by the log:
 * the first thing that was wrong, and at which byte of the body.  What the stack holds is checked where the function is compiled.
 */
#ifndef WHERRY_ASM_H
#define WHERRY_ASM_H

#include "wherry.h"

#ifndef WHERRY_ASM_BYTES
#define WHERRY_ASM_BYTES (16u << 10) /* of a body; an assembled module has at most 64 KiB */
#endif
#define WHERRY_ASM_LOCALS 200u  /* besides the two parameters */
#define WHERRY_ASM_IMPORTS 32u
#define WHERRY_ASM_HEAD 2048u   /* bytes kept for what a module has before its body */
#define WHERRY_ASM_PAYLOAD 0u   /* the parameters of wherry_main, as locals */
#define WHERRY_ASM_SIZE 1u

/* Types. */
enum { WASM_I32 = 0x7f, WASM_I64 = 0x7e, WASM_F32 = 0x7d, WASM_F64 = 0x7c, WASM_V128 = 0x7b, WASM_NOTHING = 0x40 };

/* Operations of one byte. */
enum {
    WASM_UNREACHABLE, WASM_NOP,
    WASM_RETURN = 0x0f, WASM_DROP = 0x1a, WASM_SELECT = 0x1b,
    WASM_I32_EQZ = 0x45, WASM_I32_EQ, WASM_I32_NE, WASM_I32_LT_S, WASM_I32_LT_U, WASM_I32_GT_S, WASM_I32_GT_U,
    WASM_I32_LE_S, WASM_I32_LE_U, WASM_I32_GE_S, WASM_I32_GE_U,
    WASM_I64_EQZ, WASM_I64_EQ, WASM_I64_NE, WASM_I64_LT_S, WASM_I64_LT_U, WASM_I64_GT_S, WASM_I64_GT_U,
    WASM_I64_LE_S, WASM_I64_LE_U, WASM_I64_GE_S, WASM_I64_GE_U,
    WASM_F32_EQ, WASM_F32_NE, WASM_F32_LT, WASM_F32_GT, WASM_F32_LE, WASM_F32_GE,
    WASM_F64_EQ, WASM_F64_NE, WASM_F64_LT, WASM_F64_GT, WASM_F64_LE, WASM_F64_GE,
    WASM_I32_CLZ, WASM_I32_CTZ, WASM_I32_POPCNT, WASM_I32_ADD, WASM_I32_SUB, WASM_I32_MUL, WASM_I32_DIV_S, WASM_I32_DIV_U,
    WASM_I32_REM_S, WASM_I32_REM_U, WASM_I32_AND, WASM_I32_OR, WASM_I32_XOR, WASM_I32_SHL, WASM_I32_SHR_S, WASM_I32_SHR_U,
    WASM_I32_ROTL, WASM_I32_ROTR,
    WASM_I64_CLZ, WASM_I64_CTZ, WASM_I64_POPCNT, WASM_I64_ADD, WASM_I64_SUB, WASM_I64_MUL, WASM_I64_DIV_S, WASM_I64_DIV_U,
    WASM_I64_REM_S, WASM_I64_REM_U, WASM_I64_AND, WASM_I64_OR, WASM_I64_XOR, WASM_I64_SHL, WASM_I64_SHR_S, WASM_I64_SHR_U,
    WASM_I64_ROTL, WASM_I64_ROTR,
    WASM_F32_ABS, WASM_F32_NEG, WASM_F32_CEIL, WASM_F32_FLOOR, WASM_F32_TRUNC, WASM_F32_NEAREST, WASM_F32_SQRT,
    WASM_F32_ADD, WASM_F32_SUB, WASM_F32_MUL, WASM_F32_DIV, WASM_F32_MIN, WASM_F32_MAX, WASM_F32_COPYSIGN,
    WASM_F64_ABS, WASM_F64_NEG, WASM_F64_CEIL, WASM_F64_FLOOR, WASM_F64_TRUNC, WASM_F64_NEAREST, WASM_F64_SQRT,
    WASM_F64_ADD, WASM_F64_SUB, WASM_F64_MUL, WASM_F64_DIV, WASM_F64_MIN, WASM_F64_MAX, WASM_F64_COPYSIGN,
    WASM_I32_WRAP_I64, WASM_I32_TRUNC_F32_S, WASM_I32_TRUNC_F32_U, WASM_I32_TRUNC_F64_S, WASM_I32_TRUNC_F64_U,
    WASM_I64_EXTEND_I32_S, WASM_I64_EXTEND_I32_U, WASM_I64_TRUNC_F32_S, WASM_I64_TRUNC_F32_U, WASM_I64_TRUNC_F64_S, WASM_I64_TRUNC_F64_U,
    WASM_F32_CONVERT_I32_S, WASM_F32_CONVERT_I32_U, WASM_F32_CONVERT_I64_S, WASM_F32_CONVERT_I64_U, WASM_F32_DEMOTE_F64,
    WASM_F64_CONVERT_I32_S, WASM_F64_CONVERT_I32_U, WASM_F64_CONVERT_I64_S, WASM_F64_CONVERT_I64_U, WASM_F64_PROMOTE_F32,
    WASM_I32_REINTERPRET_F32, WASM_I64_REINTERPRET_F64, WASM_F32_REINTERPRET_I32, WASM_F64_REINTERPRET_I64
};

/* Loads and stores: with wherry_asm_load and wherry_asm_store. */
enum {
    WASM_I32_LOAD = 0x28, WASM_I64_LOAD, WASM_F32_LOAD, WASM_F64_LOAD, WASM_I32_LOAD8_S, WASM_I32_LOAD8_U, WASM_I32_LOAD16_S, WASM_I32_LOAD16_U,
    WASM_I64_LOAD8_S, WASM_I64_LOAD8_U, WASM_I64_LOAD16_S, WASM_I64_LOAD16_U, WASM_I64_LOAD32_S, WASM_I64_LOAD32_U,
    WASM_I32_STORE, WASM_I64_STORE, WASM_F32_STORE, WASM_F64_STORE, WASM_I32_STORE8, WASM_I32_STORE16, WASM_I64_STORE8, WASM_I64_STORE16, WASM_I64_STORE32,
    WASM_V128_LOAD = 0x100, WASM_V128_STORE = 0x10b
};

/* Operations on vectors: with wherry_asm_vector. */
enum {
    WASM_I8X16_SPLAT = 0x0f, WASM_I16X8_SPLAT, WASM_I32X4_SPLAT, WASM_I64X2_SPLAT, WASM_F32X4_SPLAT, WASM_F64X2_SPLAT,
    WASM_I32X4_EQ = 0x37, WASM_I32X4_NE, WASM_I32X4_LT_S, WASM_I32X4_LT_U, WASM_I32X4_GT_S, WASM_I32X4_GT_U,
    WASM_I32X4_LE_S, WASM_I32X4_LE_U, WASM_I32X4_GE_S, WASM_I32X4_GE_U,
    WASM_F64X2_EQ = 0x47, WASM_F64X2_NE, WASM_F64X2_LT, WASM_F64X2_GT, WASM_F64X2_LE, WASM_F64X2_GE,
    WASM_V128_NOT, WASM_V128_AND, WASM_V128_ANDNOT, WASM_V128_OR, WASM_V128_XOR, WASM_V128_BITSELECT, WASM_V128_ANY_TRUE,
    WASM_I32X4_BITMASK = 0xa4, WASM_I32X4_ADD = 0xae, WASM_I32X4_SUB = 0xb1, WASM_I32X4_MUL = 0xb5,
    WASM_I64X2_ALL_TRUE = 0xc3, WASM_I64X2_BITMASK, WASM_I64X2_ADD = 0xce, WASM_I64X2_SUB = 0xd1, WASM_I64X2_MUL = 0xd5,
    WASM_I64X2_EQ, WASM_I64X2_NE, WASM_I64X2_LT_S, WASM_I64X2_GT_S, WASM_I64X2_LE_S, WASM_I64X2_GE_S,
    WASM_F64X2_ADD = 0xf0, WASM_F64X2_SUB, WASM_F64X2_MUL, WASM_F64X2_DIV, WASM_F64X2_MIN, WASM_F64X2_MAX
};

typedef struct {
    uint32_t used;    /* bytes of the body */
    uint32_t memory;  /* bytes of the function's own memory */
    uint32_t depth;   /* open blocks */
    uint32_t locals, imports;
    const char *wrong; /* the first thing that was; NULL: nothing */
    uint32_t where;    /* and after how many bytes of the body */
    uint8_t types[WHERRY_ASM_LOCALS];
    struct {
        const char *name, *params, *result;
    } import[WHERRY_ASM_IMPORTS];
    uint8_t bytes[WHERRY_ASM_HEAD + WHERRY_ASM_BYTES]; /* the body begins behind the head */
} wherry_asm_t;

WHERRY_HELPER void wherry_asm_wrong(wherry_asm_t *a, const char *what)
{
    if (!a->wrong) {
        a->wrong = what;
        a->where = a->used;
    }
}

WHERRY_HELPER void wherry_asm_byte(wherry_asm_t *a, uint32_t b)
{
    if (a->used < WHERRY_ASM_BYTES)
        a->bytes[WHERRY_ASM_HEAD + a->used++] = (uint8_t)b;
    else
        wherry_asm_wrong(a, "more code than WHERRY_ASM_BYTES");
}

WHERRY_HELPER void wherry_asm_unsigned(wherry_asm_t *a, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        wherry_asm_byte(a, (uint32_t)(v & 0x7f) | 0x80);
    wherry_asm_byte(a, (uint32_t)v);
}

WHERRY_HELPER void wherry_asm_signed(wherry_asm_t *a, int64_t v)
{
    while (v < -64 || v > 63) {
        wherry_asm_byte(a, (uint32_t)(v & 0x7f) | 0x80);
        v >>= 7;
    }
    wherry_asm_byte(a, (uint32_t)v & 0x7f);
}

WHERRY_HELPER void wherry_asm_raw(wherry_asm_t *a, const void *bytes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        wherry_asm_byte(a, ((const uint8_t *)bytes)[i]);
}

/* Begins a function that has so many bytes of memory of its own, from address 0 on: zero at every run. */
WHERRY_HELPER void wherry_asm_begin(wherry_asm_t *a, uint32_t memory)
{
    a->used = a->depth = a->locals = a->imports = a->where = 0;
    a->memory = memory;
    a->wrong = NULL;
}

/* A host call that the function makes, for wherry_asm_call: its name, and its types as docs/abi.md has them, i for i32 and I for i64;
 * result "" for none.  All come before the first wherry_asm_call.  The texts must stay. */
WHERRY_HELPER uint32_t wherry_asm_import(wherry_asm_t *a, const char *name, const char *params, const char *result)
{
    if (a->imports == WHERRY_ASM_IMPORTS) {
        wherry_asm_wrong(a, "more imports than WHERRY_ASM_IMPORTS");
        return 0;
    }
    a->import[a->imports].name = name;
    a->import[a->imports].params = params;
    a->import[a->imports].result = result;
    return a->imports++;
}

/* A local variable, 0 at first: its number, behind the two parameters. */
WHERRY_HELPER uint32_t wherry_asm_local(wherry_asm_t *a, uint32_t type)
{
    if (a->locals == WHERRY_ASM_LOCALS) {
        wherry_asm_wrong(a, "more locals than WHERRY_ASM_LOCALS");
        return 0;
    }
    a->types[a->locals] = (uint8_t)type;
    return 2 + a->locals++;
}

WHERRY_HELPER void wherry_asm_op(wherry_asm_t *a, uint32_t op) { wherry_asm_byte(a, op); }

WHERRY_HELPER void wherry_asm_variable(wherry_asm_t *a, uint32_t op, uint32_t local)
{
    if (local >= 2 + a->locals)
        wherry_asm_wrong(a, "a local that there is not");
    wherry_asm_byte(a, op);
    wherry_asm_unsigned(a, local);
}

WHERRY_HELPER void wherry_asm_get(wherry_asm_t *a, uint32_t local) { wherry_asm_variable(a, 0x20, local); }
WHERRY_HELPER void wherry_asm_set(wherry_asm_t *a, uint32_t local) { wherry_asm_variable(a, 0x21, local); }
WHERRY_HELPER void wherry_asm_tee(wherry_asm_t *a, uint32_t local) { wherry_asm_variable(a, 0x22, local); }

WHERRY_HELPER void wherry_asm_i32(wherry_asm_t *a, int32_t v)
{
    wherry_asm_byte(a, 0x41);
    wherry_asm_signed(a, v);
}

WHERRY_HELPER void wherry_asm_i64(wherry_asm_t *a, int64_t v)
{
    wherry_asm_byte(a, 0x42);
    wherry_asm_signed(a, v);
}

WHERRY_HELPER void wherry_asm_f64(wherry_asm_t *a, double v)
{
    wherry_asm_byte(a, 0x44);
    wherry_asm_raw(a, &v, sizeof v);
}

WHERRY_HELPER void wherry_asm_vector(wherry_asm_t *a, uint32_t op)
{
    wherry_asm_byte(a, 0xfd);
    wherry_asm_unsigned(a, op);
}

/* The value of a lane of the vector on the stack. */
WHERRY_HELPER void wherry_asm_i64x2_lane(wherry_asm_t *a, uint32_t lane)
{
    wherry_asm_vector(a, 0x1d);
    wherry_asm_byte(a, lane);
}

WHERRY_HELPER void wherry_asm_f64x2_lane(wherry_asm_t *a, uint32_t lane)
{
    wherry_asm_vector(a, 0x21);
    wherry_asm_byte(a, lane);
}

WHERRY_HELPER void wherry_asm_access(wherry_asm_t *a, uint32_t op, uint32_t offset)
{
    if (op >= 0x100)
        wherry_asm_vector(a, op - 0x100);
    else
        wherry_asm_byte(a, op);
    wherry_asm_byte(a, 0); /* nothing is said of how it is aligned */
    wherry_asm_unsigned(a, offset);
}

/* Loads from the address on the stack and offset; stores the value on the stack at the address below it and offset. */
WHERRY_HELPER void wherry_asm_load(wherry_asm_t *a, uint32_t op, uint32_t offset) { wherry_asm_access(a, op, offset); }
WHERRY_HELPER void wherry_asm_store(wherry_asm_t *a, uint32_t op, uint32_t offset) { wherry_asm_access(a, op, offset); }

WHERRY_HELPER uint32_t wherry_asm_open(wherry_asm_t *a, uint32_t op, uint32_t type)
{
    wherry_asm_byte(a, op);
    wherry_asm_byte(a, type);
    return ++a->depth;
}

/* Blocks, by the type of what they leave on the stack (WASM_NOTHING): each gives a label for wherry_asm_jump, and ends with wherry_asm_close.
 * A jump to a loop goes to its begin, one to another block behind its end. */
WHERRY_HELPER uint32_t wherry_asm_block(wherry_asm_t *a, uint32_t type) { return wherry_asm_open(a, 0x02, type); }
WHERRY_HELPER uint32_t wherry_asm_loop(wherry_asm_t *a) { return wherry_asm_open(a, 0x03, WASM_NOTHING); }
WHERRY_HELPER uint32_t wherry_asm_if(wherry_asm_t *a, uint32_t type) { return wherry_asm_open(a, 0x04, type); }
WHERRY_HELPER void wherry_asm_else(wherry_asm_t *a) { wherry_asm_byte(a, 0x05); }

WHERRY_HELPER void wherry_asm_close(wherry_asm_t *a)
{
    if (a->depth == 0) {
        wherry_asm_wrong(a, "a block is closed that was not opened");
        return;
    }
    a->depth--;
    wherry_asm_byte(a, 0x0b);
}

WHERRY_HELPER void wherry_asm_branch(wherry_asm_t *a, uint32_t op, uint32_t label)
{
    if (label == 0 || label > a->depth) {
        wherry_asm_wrong(a, "a jump to a block that is not open");
        return;
    }
    wherry_asm_byte(a, op);
    wherry_asm_unsigned(a, a->depth - label);
}

/* Jumps; jump_if: if the i32 on the stack is not 0. */
WHERRY_HELPER void wherry_asm_jump(wherry_asm_t *a, uint32_t label) { wherry_asm_branch(a, 0x0c, label); }
WHERRY_HELPER void wherry_asm_jump_if(wherry_asm_t *a, uint32_t label) { wherry_asm_branch(a, 0x0d, label); }

WHERRY_HELPER void wherry_asm_call(wherry_asm_t *a, uint32_t import)
{
    if (import >= a->imports)
        wherry_asm_wrong(a, "a call of an import that there is not");
    wherry_asm_byte(a, 0x10);
    wherry_asm_unsigned(a, import);
}

/* ---- The module around the body: written backwards, from the body's begin to its own. ---- */

typedef struct {
    uint8_t *at, *from;
} wherry_asm_head_t;

WHERRY_HELPER void wherry_asm_front(wherry_asm_head_t *h, const void *bytes, size_t n)
{
    if ((size_t)(h->at - h->from) < n)
        h->at = NULL;
    if (!h->at)
        return;
    h->at -= n;
    memcpy(h->at, bytes, n);
}

WHERRY_HELPER void wherry_asm_front_byte(wherry_asm_head_t *h, uint32_t b)
{
    uint8_t one = (uint8_t)b;
    wherry_asm_front(h, &one, 1);
}

WHERRY_HELPER void wherry_asm_front_number(wherry_asm_head_t *h, uint32_t v)
{
    uint8_t b[5];
    uint32_t n = 0;
    for (; v >= 0x80; v >>= 7)
        b[n++] = (uint8_t)(v | 0x80);
    b[n++] = (uint8_t)v;
    wherry_asm_front(h, b, n);
}

WHERRY_HELPER void wherry_asm_front_text(wherry_asm_head_t *h, const char *text)
{
    uint32_t n = 0;
    while (text[n])
        n++;
    wherry_asm_front(h, text, n);
    wherry_asm_front_number(h, n);
}

/* Makes what lies before end, from h->at on, a section. */
WHERRY_HELPER void wherry_asm_section(wherry_asm_head_t *h, uint32_t id, const uint8_t *end)
{
    if (!h->at)
        return;
    wherry_asm_front_number(h, (uint32_t)(end - h->at));
    wherry_asm_front_byte(h, id);
}

WHERRY_HELPER void wherry_asm_front_types(wherry_asm_head_t *h, const char *types)
{
    uint32_t n = 0;
    while (types[n])
        n++;
    for (uint32_t i = n; i--;)
        wherry_asm_front_byte(h, types[i] == 'I' ? WASM_I64 : WASM_I32);
    wherry_asm_front_number(h, n);
}

/* A constant global that is exported: where the memory of its own begins, or ends. */
WHERRY_HELPER void wherry_asm_front_export(wherry_asm_head_t *h, const char *name, uint32_t kind, uint32_t index)
{
    wherry_asm_front_number(h, index);
    wherry_asm_front_byte(h, kind);
    wherry_asm_front_text(h, name);
}

WHERRY_HELPER void wherry_asm_front_global(wherry_asm_head_t *h, uint32_t v)
{
    uint8_t b[9] = {WASM_I32, 0, 0x41, (uint8_t)(v | 0x80), (uint8_t)(v >> 7 | 0x80), (uint8_t)(v >> 14 | 0x80), (uint8_t)(v >> 21 | 0x80),
                    (uint8_t)(v >> 28), 0x0b};
    wherry_asm_front(h, b, sizeof b);
}

WHERRY_HELPER void wherry_asm_front_imports(wherry_asm_t *a, wherry_asm_head_t *h)
{
    const uint8_t *end = h->at;
    for (uint32_t i = a->imports; i--;) {
        wherry_asm_front_number(h, i); /* each has a type of its own */
        wherry_asm_front_byte(h, 0);
        wherry_asm_front_text(h, a->import[i].name);
        wherry_asm_front_text(h, "wherry");
    }
    wherry_asm_front_number(h, a->imports);
    wherry_asm_section(h, 2, end);
    end = h->at;
    wherry_asm_front_types(h, "i");
    wherry_asm_front_types(h, "ii");
    wherry_asm_front_byte(h, 0x60);
    for (uint32_t i = a->imports; i--;) {
        wherry_asm_front_types(h, a->import[i].result);
        wherry_asm_front_types(h, a->import[i].params);
        wherry_asm_front_byte(h, 0x60);
    }
    wherry_asm_front_number(h, a->imports + 1);
    wherry_asm_section(h, 1, end);
}

WHERRY_HELPER void wherry_asm_front_locals(wherry_asm_t *a, wherry_asm_head_t *h)
{
    for (uint32_t i = a->locals; i--;) {
        wherry_asm_front_byte(h, a->types[i]);
        wherry_asm_front_byte(h, 1);
    }
    wherry_asm_front_number(h, a->locals);
}

/* The module, whose size it writes; NULL: a->wrong says why. */
WHERRY_HELPER const void *wherry_asm_module(wherry_asm_t *a, uint32_t *size)
{
    static const uint8_t magic[8] = {0, 'a', 's', 'm', 1, 0, 0, 0};
    wherry_asm_head_t h = {a->bytes + WHERRY_ASM_HEAD, a->bytes};
    if (a->depth != 0)
        wherry_asm_wrong(a, "a block is not closed");
    if (a->memory > 1u << 30)
        wherry_asm_wrong(a, "more than a GiB of memory");
    wherry_asm_byte(a, 0x0b);
    const uint8_t *end = a->bytes + WHERRY_ASM_HEAD + a->used, *next;
    wherry_asm_front_locals(a, &h);
    if (h.at)
        wherry_asm_front_number(&h, (uint32_t)(end - h.at)); /* the body's */
    wherry_asm_front_byte(&h, 1);
    wherry_asm_section(&h, 10, end);
    next = h.at;
    wherry_asm_front_export(&h, "__data_end", 3, 1);
    wherry_asm_front_export(&h, "__global_base", 3, 0);
    wherry_asm_front_export(&h, "wherry_main", 0, a->imports);
    wherry_asm_front_export(&h, "memory", 2, 0);
    wherry_asm_front_byte(&h, 4);
    wherry_asm_section(&h, 7, next);
    next = h.at;
    wherry_asm_front_global(&h, a->memory);
    wherry_asm_front_global(&h, 0);
    wherry_asm_front_byte(&h, 2);
    wherry_asm_section(&h, 6, next);
    next = h.at;
    wherry_asm_front_number(&h, (a->memory + 0xffff) >> 16);
    wherry_asm_front_byte(&h, 0);
    wherry_asm_front_byte(&h, 1);
    wherry_asm_section(&h, 5, next);
    next = h.at;
    wherry_asm_front_number(&h, a->imports);
    wherry_asm_front_byte(&h, 1);
    wherry_asm_section(&h, 3, next);
    wherry_asm_front_imports(a, &h);
    wherry_asm_front(&h, magic, sizeof magic);
    if (!h.at)
        wherry_asm_wrong(a, "more imports and locals than fit before the body");
    *size = h.at ? (uint32_t)(end - h.at) : 0;
    return a->wrong ? NULL : h.at;
}

/* Logs what was wrong, so that the caller of the function hears it if that fails. */
WHERRY_HELPER void wherry_asm_complain(wherry_asm_t *a)
{
    char text[96] = "wherry_asm: byte ", digits[10];
    uint32_t n = 17, v = a->where, d = 0;
    do
        digits[d++] = (char)('0' + v % 10);
    while (v /= 10);
    while (d)
        text[n++] = digits[--d];
    text[n++] = ':';
    text[n++] = ' ';
    for (const char *s = a->wrong; *s && n < sizeof text; s++)
        text[n++] = *s;
    wherry_log(text, n);
}

/* Ends the function, and makes it one: its number for wherry_forward and wherry_fork, or a negative status. */
WHERRY_HELPER int32_t wherry_asm_end(wherry_asm_t *a)
{
    uint32_t size;
    const void *module = wherry_asm_module(a, &size);
    if (module)
        return wherry_assemble(module, size);
    wherry_asm_complain(a);
    return WHERRY_ERR_ARGUMENT;
}

#endif
