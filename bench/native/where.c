/* where: counts the rows for which a predicate holds, and adds up their first columns.
 *
 * Rows are signed 64-bit numbers, named a, b, c … in their order; the predicate is an expression of them:
 *
 *     a % 10 < 3 && (b > c || !(d == 5))
 *
 * The first element reads it, compiles it into a function, and sends that to all elements. With interpret it sends itself instead, and
 * walks the expression for every row: what it would have to do if it could not make code.
 */
#include "wherry.h"
#include "wherry_asm.h"

typedef struct {
    wherry_str_t predicate;
    uint32_t columns; /* of a row */
    uint32_t step; /* 0: begin; 1: interpret it everywhere; 2: such a branch */
} params_t;

typedef struct {
    uint32_t rows, zero;
    uint64_t matches;
    int64_t total;
} part_t;

/* ---- The expression: a tree of nodes. ---- */

enum { CONSTANT, COLUMN, NOT, MUL, DIV, REM, ADD, SUB, LT, GT, LE, GE, EQ, NE, AND, OR };

typedef struct {
    uint32_t op, left, right; /* right: of a column its offset in the row */
    int64_t value;
} node_t;

#define MOST 256u
static node_t nodes[MOST];
static uint32_t count;
static const char *text, *at, *end;
static uint32_t stride, depth;

/* Says where the predicate cannot be read. */
static int32_t unreadable(void)
{
    char said[80] = "the predicate cannot be read from here on: ";
    uint32_t n = 43;
    for (const char *s = at; s < end && n < sizeof said; s++)
        said[n++] = *s;
    wherry_log(said, n);
    return WHERRY_ERR_ARGUMENT;
}

static uint32_t node(uint32_t op, uint32_t left, uint32_t right, int64_t value)
{
    if (count == MOST) {
        at = end;
        return MOST;
    }
    nodes[count] = (node_t){op, left, right, value};
    return count++;
}

static int accept(const char *word)
{
    while (at < end && *at == ' ')
        at++;
    uint32_t n = 0;
    while (word[n])
        n++;
    if ((uint32_t)(end - at) < n || memcmp(at, word, n) != 0)
        return 0;
    at += n;
    return 1;
}

static const struct {
    const char *word;
    uint32_t op, level;
} operators[] = {{"||", OR, 1}, {"&&", AND, 2}, {"<=", LE, 3}, {">=", GE, 3}, {"==", EQ, 3}, {"!=", NE, 3}, {"<", LT, 3}, {">", GT, 3},
                 {"+", ADD, 4}, {"-", SUB, 4}, {"*", MUL, 5}, {"/", DIV, 5}, {"%", REM, 5}};

static uint32_t expression(uint32_t level);

/* A number, a column, or what is in parentheses; MOST if it is none of them. */
static uint32_t term(void)
{
    if (++depth > 64)
        return MOST;
    uint32_t n = MOST;
    if (accept("!"))
        n = (n = term()) == MOST ? MOST : node(NOT, n, 0, 0);
    else if (accept("(")) {
        n = expression(1);
        if (!accept(")"))
            n = MOST;
    } else if (at < end && *at >= 'a' && *at <= 'z' && (uint32_t)(*at - 'a' + 1) * 8 <= stride) {
        n = node(COLUMN, 0, (uint32_t)(*at - 'a') * 8, 0);
        at++;
    } else {
        int64_t sign = accept("-") ? -1 : 1;
        uint64_t v = 0;
        const char *from = at;
        while (at < end && *at >= '0' && *at <= '9')
            v = v * 10 + (uint64_t)(*at++ - '0');
        if (at > from)
            n = node(CONSTANT, 0, 0, sign * (int64_t)v);
    }
    depth--;
    return n;
}

static uint32_t expression(uint32_t level)
{
    uint32_t left = level > 5 ? term() : expression(level + 1);
    if (level > 5)
        return left;
    for (uint32_t i = 0; left < MOST && i < sizeof operators / sizeof *operators;)
        if (operators[i].level == level && accept(operators[i].word)) {
            uint32_t right = expression(level + 1);
            left = right == MOST ? MOST : node(operators[i].op, left, right, 0);
            i = 0;
        } else
            i++;
    return left;
}

/* ---- As an interpreter. ---- */

static int64_t eval(const node_t *n, const uint8_t *row)
{
    if (n->op == CONSTANT)
        return n->value;
    if (n->op == COLUMN)
        return *(const int64_t *)(row + n->right);
    int64_t x = eval(&nodes[n->left], row);
    if (n->op == NOT)
        return !x;
    if (n->op == AND || n->op == OR)
        return (n->op == AND) == !x ? n->op == OR : eval(&nodes[n->right], row) != 0;
    int64_t y = eval(&nodes[n->right], row);
    switch (n->op) {
    case MUL:
        return (int64_t)((uint64_t)x * (uint64_t)y);
    case DIV:
        return x / y; /* by 0 the branch traps, in both ways */
    case REM:
        return y == -1 ? 0 : x % y;
    case ADD:
        return (int64_t)((uint64_t)x + (uint64_t)y);
    case SUB:
        return (int64_t)((uint64_t)x - (uint64_t)y);
    case LT:
        return x < y;
    case GT:
        return x > y;
    case LE:
        return x <= y;
    case GE:
        return x >= y;
    case EQ:
        return x == y;
    }
    return x != y;
}

static int32_t interpret(uint32_t root)
{
    wherry_window_t w;
    WHERRY_TRY(wherry_window_or_empty(0, &w));
    part_t part = {1, 0, 0, 0};
    const uint8_t *row = w.addr, *last = row + w.size / stride * stride;
    for (; row < last; row += stride)
        if (eval(&nodes[root], row)) {
            part.matches++;
            part.total += *(const int64_t *)row;
        }
    return wherry_reply(&part, sizeof part);
}

/* ---- As a compiler. ---- */

static wherry_asm_t a;

/* Leaves a node's value on the stack; a comparison's as an i32, which truth says. */
static int compile(uint32_t i, uint32_t row)
{
    static const uint8_t ops[] = {[MUL] = WASM_I64_MUL, [DIV] = WASM_I64_DIV_S, [REM] = WASM_I64_REM_S, [ADD] = WASM_I64_ADD, [SUB] = WASM_I64_SUB,
                                  [LT] = WASM_I64_LT_S, [GT] = WASM_I64_GT_S, [LE] = WASM_I64_LE_S, [GE] = WASM_I64_GE_S, [EQ] = WASM_I64_EQ, [NE] = WASM_I64_NE};
    const node_t *n = &nodes[i];
    switch (n->op) {
    case CONSTANT:
        wherry_asm_i64(&a, n->value);
        return 0;
    case COLUMN:
        wherry_asm_get(&a, row);
        wherry_asm_load(&a, WASM_I64_LOAD, n->right);
        return 0;
    case NOT:
        wherry_asm_op(&a, compile(n->left, row) ? WASM_I32_EQZ : WASM_I64_EQZ);
        return 1;
    case AND: /* the right side runs only if it decides */
    case OR:
        if (!compile(n->left, row)) {
            wherry_asm_op(&a, WASM_I64_EQZ);
            wherry_asm_op(&a, WASM_I32_EQZ);
        }
        wherry_asm_if(&a, WASM_I32);
        if (n->op == OR) {
            wherry_asm_i32(&a, 1);
            wherry_asm_else(&a);
        }
        if (!compile(n->right, row)) {
            wherry_asm_op(&a, WASM_I64_EQZ);
            wherry_asm_op(&a, WASM_I32_EQZ);
        }
        if (n->op == AND) {
            wherry_asm_else(&a);
            wherry_asm_i32(&a, 0);
        }
        wherry_asm_close(&a);
        return 1;
    }
    if (compile(n->left, row))
        wherry_asm_op(&a, WASM_I64_EXTEND_I32_U);
    if (compile(n->right, row))
        wherry_asm_op(&a, WASM_I64_EXTEND_I32_U);
    wherry_asm_op(&a, ops[n->op]);
    return n->op >= LT;
}

/* What the function's memory holds: the answer, then where its window lies. */
#define WINDOW sizeof(part_t)

/* The function that does what interpret does, for one expression. */
static int32_t make(uint32_t root)
{
    wherry_asm_begin(&a, WINDOW + sizeof(wherry_window_t) + 8);
    uint32_t window = wherry_asm_import(&a, "window", "ii", "i"), reply = wherry_asm_import(&a, "reply", "ii", "i");
    uint32_t row = wherry_asm_local(&a, WASM_I32), last = wherry_asm_local(&a, WASM_I32), status = wherry_asm_local(&a, WASM_I32);
    uint32_t matches = wherry_asm_local(&a, WASM_I64), total = wherry_asm_local(&a, WASM_I64);
    wherry_asm_i32(&a, 0);
    wherry_asm_i32(&a, WINDOW);
    wherry_asm_call(&a, window);
    wherry_asm_tee(&a, status);
    wherry_asm_if(&a, WASM_NOTHING); /* without rows here there is no window, and the answer is 0 */
    wherry_asm_get(&a, status);
    wherry_asm_i32(&a, WHERRY_ERR_NO_WINDOW);
    wherry_asm_op(&a, WASM_I32_NE);
    wherry_asm_if(&a, WASM_NOTHING);
    wherry_asm_get(&a, status);
    wherry_asm_op(&a, WASM_RETURN);
    wherry_asm_close(&a);
    wherry_asm_close(&a);
    wherry_asm_i32(&a, WINDOW);
    wherry_asm_load(&a, WASM_I32_LOAD, 0);
    wherry_asm_tee(&a, row);
    wherry_asm_i32(&a, WINDOW);
    wherry_asm_load(&a, WASM_I32_LOAD, 8);
    wherry_asm_i32(&a, (int32_t)stride); /* whole rows */
    wherry_asm_op(&a, WASM_I32_DIV_U);
    wherry_asm_i32(&a, (int32_t)stride);
    wherry_asm_op(&a, WASM_I32_MUL);
    wherry_asm_op(&a, WASM_I32_ADD);
    wherry_asm_set(&a, last);
    uint32_t done = wherry_asm_block(&a, WASM_NOTHING), again = wherry_asm_loop(&a);
    wherry_asm_get(&a, row);
    wherry_asm_get(&a, last);
    wherry_asm_op(&a, WASM_I32_GE_U);
    wherry_asm_jump_if(&a, done);
    if (!compile(root, row)) {
        wherry_asm_op(&a, WASM_I64_EQZ);
        wherry_asm_op(&a, WASM_I32_EQZ);
    }
    wherry_asm_if(&a, WASM_NOTHING);
    wherry_asm_get(&a, matches);
    wherry_asm_i64(&a, 1);
    wherry_asm_op(&a, WASM_I64_ADD);
    wherry_asm_set(&a, matches);
    wherry_asm_get(&a, total);
    wherry_asm_get(&a, row);
    wherry_asm_load(&a, WASM_I64_LOAD, 0);
    wherry_asm_op(&a, WASM_I64_ADD);
    wherry_asm_set(&a, total);
    wherry_asm_close(&a);
    wherry_asm_get(&a, row);
    wherry_asm_i32(&a, (int32_t)stride);
    wherry_asm_op(&a, WASM_I32_ADD);
    wherry_asm_set(&a, row);
    wherry_asm_jump(&a, again);
    wherry_asm_close(&a);
    wherry_asm_close(&a);
    wherry_asm_i32(&a, 0);
    wherry_asm_i64(&a, 1); /* one row of results */
    wherry_asm_store(&a, WASM_I64_STORE, 0);
    wherry_asm_i32(&a, 0);
    wherry_asm_get(&a, matches);
    wherry_asm_store(&a, WASM_I64_STORE, offsetof(part_t, matches));
    wherry_asm_i32(&a, 0);
    wherry_asm_get(&a, total);
    wherry_asm_store(&a, WASM_I64_STORE, offsetof(part_t, total));
    wherry_asm_i32(&a, 0);
    wherry_asm_i32(&a, sizeof(part_t));
    wherry_asm_call(&a, reply);
    return wherry_asm_end(&a);
}

WHERRY_ENTRY(payload, size)
{
    if (size < sizeof(params_t))
        return WHERRY_ERR_ARGUMENT;
    params_t *p = (params_t *)payload;
    text = wherry_text(payload, size, p->predicate);
    if (!text || p->columns - 1 >= 26)
        return WHERRY_ERR_ARGUMENT;
    at = text;
    end = text + p->predicate.size;
    stride = p->columns * 8;
    uint32_t root = expression(1);
    accept("");
    if (root == MOST || at != end)
        return unreadable();
    if (p->step == 2)
        return interpret(root);
    int32_t f = 0;
    if (p->step == 0) {
        f = make(root);
        if (f < 0)
            return f;
    }
    p->step = 2;
    for (int32_t e = 0; e < wherry_elements(); e++)
        WHERRY_TRY(wherry_fork_wait((uint32_t)f, e, payload, f ? 0 : size));
    return WHERRY_OK;
}
