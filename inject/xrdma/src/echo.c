/* echo: replies with its payload.  What it takes is the cost of moving and
 * starting a function, and nothing else. */
#include "wherry.h"

WHERRY_ENTRY(payload, size) { return wherry_reply(payload, size); }
