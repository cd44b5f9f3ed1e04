/* journey: moves about the elements of its table. */
#include "wherry.h"

typedef struct {
    uint32_t op, n;
    uint64_t ns; /* spent at each element */
} order_t;

static uint8_t buffer[4096];

static void spin(uint64_t ns)
{
    if (ns)
        for (uint64_t until = wherry_now() + ns; wherry_now() < until;)
            ;
}

static int32_t next(int32_t by) { return (wherry_self() + by) % wherry_elements(); }

WHERRY_ENTRY(payload, size)
{
    const order_t *in = (const order_t *)payload;
    if (size < sizeof *in)
        return WHERRY_ERR_ARGUMENT;
    order_t o = *in;
    uint32_t self = (uint32_t)wherry_self();
    switch (o.op) {
    case 0: /* around and around */
        spin(o.ns);
        return wherry_forward(0, next(1), &o, sizeof o);
    case 1: /* n more hops */
        spin(o.ns);
        if (o.n-- == 0)
            return wherry_reply(&self, sizeof self);
        return wherry_forward(0, next(1), &o, sizeof o);
    case 2: /* a tree of depth n with two branches at each node */
        if (o.n-- > 0) {
            WHERRY_TRY(wherry_fork_wait(0, next(1), &o, sizeof o));
            WHERRY_TRY(wherry_fork_wait(0, next(2), &o, sizeof o));
        }
        spin(o.ns);
        return wherry_reply(&self, sizeof self);
    case 3: /* a tree without leaves */
        WHERRY_TRY(wherry_fork(0, next(1), &o, sizeof o));
        WHERRY_TRY(wherry_fork(0, next(2), &o, sizeof o));
        return WHERRY_OK;
    case 4: /* more forks than one run may make */
        o.op = 9;
        for (;;)
            WHERRY_TRY(wherry_fork_wait(0, next(1), &o, sizeof o));
    case 5: /* n parts of 4 KiB that begin with their number, then the reply */
        for (uint32_t i = 0; i < o.n; i++) {
            ((uint32_t *)buffer)[0] = i;
            ((uint32_t *)buffer)[1] = self;
            WHERRY_TRY(wherry_reply_part(buffer, sizeof buffer));
            spin(o.ns);
        }
        return wherry_reply(&o.n, sizeof o.n);
    case 6: /* n branches that come back here */
        o.op = 7;
        for (uint32_t i = 0; i < in->n; i++)
            WHERRY_TRY(wherry_fork(0, next(1), &o, sizeof o));
        return wherry_reply(&self, sizeof self);
    case 7:
        spin(o.ns);
        o.op = 9;
        return wherry_forward(0, next(wherry_elements() - 1), &o, sizeof o);
    case 9:
        spin(o.ns);
        return wherry_reply(&self, sizeof self);
    }
    return WHERRY_ERR_UNSUPPORTED;
}
