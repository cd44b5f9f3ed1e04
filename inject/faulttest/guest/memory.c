/* memory: what one run leaves and another finds. */
#include "wherry.h"

typedef struct {
    uint32_t op, n;
    uint64_t word;
} order_t;

#define SCRATCH 65536u
#define MASK 0x5555555555555555u /* the word itself is in no payload */

static volatile uint64_t here[1024]; /* nobody reads it but by its address */

typedef struct {
    uint32_t inside, runs;
} scratch_t;

static uint32_t count(uint64_t word, const uint64_t *scratch)
{
    uint32_t found = 0;
    for (const uint64_t *p = (const uint64_t *)8; p < scratch + SCRATCH / sizeof *p; p++)
        found += (*(const volatile uint64_t *)p ^ MASK) == word;
    return found;
}

WHERRY_ENTRY(payload, size)
{
    const order_t *in = (const order_t *)payload;
    if (size < sizeof *in)
        return WHERRY_ERR_ARGUMENT;
    order_t o = *in;
    if (o.op == 4) { /* ends without scratch */
        uint32_t self = (uint32_t)wherry_self();
        return wherry_reply(&self, sizeof self);
    }
    if (o.op == 7) { /* without scratch: leaves the word in the heap if n is not 0, and says in how many words it finds it */
        uint32_t found = 0;
        for (uint32_t i = 0; i < sizeof here / sizeof *here; i++) {
            if (o.n)
                here[i] = o.word ^ MASK;
            found += (here[i] ^ MASK) == o.word;
        }
        return wherry_reply(&found, sizeof found);
    }
    uint64_t *scratch = (uint64_t *)wherry_scratch(SCRATCH);
    if (!scratch)
        return WHERRY_ERR_LIMIT;
    switch (o.op) {
    case 0: /* leaves the word in the heap, in scratch and in the payload's area */
        for (uint32_t i = 0; i < sizeof here / sizeof *here; i++)
            here[i] = o.word ^ MASK;
        for (uint32_t i = 0; i < SCRATCH / sizeof *scratch; i++)
            scratch[i] = o.word ^ MASK;
        for (uint32_t i = 2; i < 64; i++)
            ((volatile uint64_t *)payload)[i] = o.word ^ MASK;
        /* fall through */
    case 1: { /* says in how many words it finds it */
        uint32_t found = count(o.word, scratch);
        return wherry_reply(&found, sizeof found);
    }
    case 2: /* n branches, here, that count themselves in scratch */
        o.op = 3;
        for (uint32_t i = 0; i < in->n; i++)
            WHERRY_TRY(wherry_fork_wait(0, wherry_self(), &o, sizeof o));
        /* fall through */
    case 3: {
        scratch_t *s = (scratch_t *)scratch;
        if (s->inside++)
            return 77;
        for (uint64_t until = wherry_now() + o.word; wherry_now() < until;)
            ;
        uint32_t runs = ++s->runs;
        if (--s->inside)
            return 78;
        return wherry_reply(&runs, sizeof runs);
    }
    case 5: /* keeps scratch here, and stays at the next element */
        o.op = 6;
        return wherry_forward(0, (wherry_self() + 1) % wherry_elements(), &o, sizeof o);
    case 6:
        for (uint64_t until = wherry_now() + o.word; wherry_now() < until;)
            ;
        return wherry_reply(NULL, 0);
    }
    return WHERRY_ERR_UNSUPPORTED;
}
