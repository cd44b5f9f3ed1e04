/* value: replies with the number that it was built with. */
#include "wherry.h"

static const uint32_t value = VALUE;

WHERRY_ENTRY(payload, size) { return wherry_reply(&value, sizeof value); }
