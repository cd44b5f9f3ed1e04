/* The injected side of the scan benchmark: window 0, and the bound as payload. */
#include "wherry.h"
#include "scan.h"

WHERRY_ENTRY(payload, size)
{
    wherry_window_t w;
    WHERRY_TRY(wherry_window(0, &w));
    if (size != 8)
        return WHERRY_ERR_ARGUMENT;
    uint64_t sum = scan((const uint64_t *)w.addr, w.size / 8, *(const uint64_t *)payload);
    return wherry_reply(&sum, sizeof sum);
}
