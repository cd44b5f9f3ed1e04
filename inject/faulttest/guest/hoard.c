/* hoard: takes as much scratch as its payload says, and keeps it while it stays at the next element. */
#include "wherry.h"

typedef struct {
    uint32_t op, untouched;
    uint64_t bytes, ns;
} order_t;

WHERRY_ENTRY(payload, size)
{
    order_t o;
    if (size < sizeof o)
        return WHERRY_ERR_ARGUMENT;
    __builtin_memcpy(&o, payload, sizeof o);
    uint64_t until = wherry_now() + o.ns;
    switch (o.op) {
    case 2: /* sends something first, and so cannot start over */
        WHERRY_TRY(wherry_reply_part("x", 1));
        /* fall through */
    case 3: /* computes for a while first */
        if (o.op == 3)
            while (wherry_now() < until)
                ;
        /* fall through */
    case 0: {
        uint8_t *s = (uint8_t *)wherry_scratch(o.bytes);
        if (!s)
            return WHERRY_ERR_LIMIT;
        for (uint64_t i = 0; i < o.bytes; i += 4096) {
            if (s[i])
                return 77;
            if (!o.untouched)
                s[i] = 1;
        }
        if (o.op == 3)
            return wherry_reply(payload, size);
        o.op = 1;
        return wherry_forward(0, (wherry_self() + 1) % wherry_elements(), &o, sizeof o);
    }
    case 1:
        while (wherry_now() < until)
            ;
        return wherry_reply(payload, size);
    case 4: /* writes where it has not asked for any */
        for (uint8_t *s = (uint8_t *)wherry_scratch(1);; s += 4096)
            *s = 1;
    }
    return WHERRY_ERR_UNSUPPORTED;
}
