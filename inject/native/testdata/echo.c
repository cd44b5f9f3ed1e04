/* Answers its payload: what a benchmark of an empty run takes. */
#include "wherry.h"

WHERRY_ENTRY(payload, size)
{
    if (size == 16) { /* a call that the node answers */
        uint64_t local;
        wherry_owner(1, &local);
    }
    return wherry_reply(payload, size);
}
