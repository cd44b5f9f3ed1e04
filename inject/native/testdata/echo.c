/* Answers its payload: what a benchmark of an empty run takes. */
#include "wherry.h"

WHERRY_ENTRY(payload, size)
{
    if (size == 16 && wherry_remaining() == 0) /* a call that the node answers */
        return WHERRY_ERR_DEADLINE;
    return wherry_reply(payload, size);
}
