/* The papers' increment: adds to the first word of window 0 and replies with it. Each STEP is another function, that no cache knows. */
#include "wherry.h"

WHERRY_ENTRY(payload, size)
{
    (void)payload, (void)size;
    wherry_window_t w;
    WHERRY_TRY(wherry_window(0, &w));
    uint64_t *word = (uint64_t *)w.addr;
    *word += STEP;
    return wherry_reply(word, sizeof *word);
}
