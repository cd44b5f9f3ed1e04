/* What wherry_asm.h writes: struct {u32 op, …} is which program. */
#include "wherry.h"
#define WHERRY_ASM_BYTES 4096u
#include "wherry_asm.h"

static wherry_asm_t a;
static uint32_t reply;

static void begin(void)
{
    wherry_asm_begin(&a, 16);
    reply = wherry_asm_import(&a, "reply", "ii", "i");
}

/* Ends it: the 8 bytes at address 0 are the answer. */
static int32_t end(void)
{
    wherry_asm_i32(&a, 0);
    wherry_asm_i32(&a, 8);
    wherry_asm_call(&a, reply);
    int32_t f = wherry_asm_end(&a);
    return f < 0 ? f : WHERRY_OK;
}

/* A loop over the payload's pairs of 8 bytes: each is for body. */
static int32_t pairs(void (*body)(uint32_t at, uint32_t local), uint32_t type)
{
    begin();
    uint32_t local = wherry_asm_local(&a, type), at = wherry_asm_local(&a, WASM_I32), last = wherry_asm_local(&a, WASM_I32);
    wherry_asm_get(&a, WHERRY_ASM_PAYLOAD);
    wherry_asm_tee(&a, at);
    wherry_asm_get(&a, WHERRY_ASM_SIZE);
    wherry_asm_op(&a, WASM_I32_ADD);
    wherry_asm_set(&a, last);
    uint32_t done = wherry_asm_block(&a, WASM_NOTHING), again = wherry_asm_loop(&a);
    wherry_asm_get(&a, at);
    wherry_asm_get(&a, last);
    wherry_asm_op(&a, WASM_I32_GE_U);
    wherry_asm_jump_if(&a, done);
    body(at, local);
    wherry_asm_get(&a, at);
    wherry_asm_i32(&a, 16);
    wherry_asm_op(&a, WASM_I32_ADD);
    wherry_asm_set(&a, at);
    wherry_asm_jump(&a, again);
    wherry_asm_close(&a);
    wherry_asm_close(&a);
    wherry_asm_i32(&a, 0);
    if (type == WASM_V128) {
        wherry_asm_get(&a, local);
        wherry_asm_f64x2_lane(&a, 0);
        wherry_asm_get(&a, local);
        wherry_asm_f64x2_lane(&a, 1);
        wherry_asm_op(&a, WASM_F64_ADD);
        wherry_asm_store(&a, WASM_F64_STORE, 0);
    } else {
        wherry_asm_get(&a, local);
        wherry_asm_store(&a, WASM_I64_STORE, 0);
    }
    return end();
}

/* The larger one of a pair, added. */
static void larger(uint32_t at, uint32_t sum)
{
    wherry_asm_get(&a, at);
    wherry_asm_load(&a, WASM_I64_LOAD, 0);
    wherry_asm_get(&a, at);
    wherry_asm_load(&a, WASM_I64_LOAD, 8);
    wherry_asm_op(&a, WASM_I64_GT_S);
    wherry_asm_if(&a, WASM_I64);
    wherry_asm_get(&a, at);
    wherry_asm_load(&a, WASM_I64_LOAD, 0);
    wherry_asm_else(&a);
    wherry_asm_get(&a, at);
    wherry_asm_load(&a, WASM_I64_LOAD, 8);
    wherry_asm_close(&a);
    wherry_asm_get(&a, sum);
    wherry_asm_op(&a, WASM_I64_ADD);
    wherry_asm_set(&a, sum);
}

/* A pair's squares, added in two lanes. */
static void squares(uint32_t at, uint32_t sum)
{
    wherry_asm_get(&a, at);
    wherry_asm_load(&a, WASM_V128_LOAD, 0);
    wherry_asm_get(&a, at);
    wherry_asm_load(&a, WASM_V128_LOAD, 0);
    wherry_asm_vector(&a, WASM_F64X2_MUL);
    wherry_asm_get(&a, sum);
    wherry_asm_vector(&a, WASM_F64X2_ADD);
    wherry_asm_set(&a, sum);
}

/* Constants of all sizes, folded into one number. */
static int32_t constants(void)
{
    static const int64_t list[] = {0, -1, 63, 64, -64, -65, 8191, 8192, INT64_MAX, INT64_MIN, 0x123456789abcdef};
    begin();
    uint32_t sum = wherry_asm_local(&a, WASM_I64);
    for (uint32_t i = 0; i < sizeof list / sizeof *list; i++) {
        wherry_asm_get(&a, sum);
        wherry_asm_i64(&a, 31);
        wherry_asm_op(&a, WASM_I64_MUL);
        wherry_asm_i64(&a, list[i]);
        wherry_asm_op(&a, WASM_I64_XOR);
        wherry_asm_i32(&a, (int32_t)list[i]);
        wherry_asm_op(&a, WASM_I64_EXTEND_I32_S);
        wherry_asm_op(&a, WASM_I64_ADD);
        wherry_asm_set(&a, sum);
    }
    wherry_asm_i32(&a, 0);
    wherry_asm_get(&a, sum);
    wherry_asm_f64(&a, 1.5);
    wherry_asm_op(&a, WASM_I64_REINTERPRET_F64);
    wherry_asm_op(&a, WASM_I64_ADD);
    wherry_asm_store(&a, WASM_I64_STORE, 0);
    return end();
}

WHERRY_ENTRY(payload, size)
{
    uint32_t op = size < 4 ? 0 : *(const uint32_t *)payload, label;
    switch (op) {
    case 1:
        return pairs(larger, WASM_I64);
    case 2:
        return pairs(squares, WASM_V128);
    case 3:
        return constants();
    case 4: /* a block is open */
        begin();
        wherry_asm_block(&a, WASM_NOTHING);
        return end();
    case 5: /* a jump out of nothing */
        begin();
        label = wherry_asm_block(&a, WASM_NOTHING);
        wherry_asm_close(&a);
        wherry_asm_jump(&a, label);
        return end();
    case 6: /* too long */
        begin();
        for (uint32_t i = 0; i < WHERRY_ASM_BYTES; i++)
            wherry_asm_op(&a, WASM_NOP);
        return end();
    case 7: /* what there is not */
        begin();
        wherry_asm_get(&a, 2);
        return end();
    case 8:
        begin();
        wherry_asm_close(&a);
        return end();
    case 9:
        begin();
        for (uint32_t i = 0; i < 40; i++)
            wherry_asm_import(&a, "reply", "ii", "i");
        return end();
    case 10: /* as many as there can be */
        begin();
        for (uint32_t i = 1; i < WHERRY_ASM_IMPORTS; i++)
            wherry_asm_import(&a, "shard_rows", "iii", "i");
        for (uint32_t i = 0; i < WHERRY_ASM_LOCALS; i++)
            wherry_asm_local(&a, WASM_I64);
        return end();
    }
    return WHERRY_ERR_UNSUPPORTED;
}
