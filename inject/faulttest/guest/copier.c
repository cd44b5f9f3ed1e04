/* copier: copies from a window of its own element, again and again, and says so each time. */
#include "wherry.h"

#define BYTES (16u << 20)
static uint8_t buffer[BYTES];

WHERRY_ENTRY(payload, size)
{
    for (;;) {
        WHERRY_TRY(wherry_get(wherry_self(), 0, 0, buffer, BYTES));
        wherry_log("c", 1);
    }
}
