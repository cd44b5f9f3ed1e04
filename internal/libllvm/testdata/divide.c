/* One of ten divisions of two numbers. */
#include "wherry.h"

WHERRY_ENTRY(payload, size)
{
    struct order { uint64_t way, n, by; } *o = payload;
    if (size != sizeof *o)
        return WHERRY_ERR_ARGUMENT;
    uint64_t got = 0;
    switch (o->way) {
    case 0: got = (uint64_t)((int32_t)o->n / (int32_t)o->by); break;
    case 1: got = (uint64_t)((int32_t)o->n % (int32_t)o->by); break;
    case 2: got = (uint32_t)o->n / (uint32_t)o->by; break;
    case 3: got = (uint32_t)o->n % (uint32_t)o->by; break;
    case 4: got = (uint64_t)((int64_t)o->n / (int64_t)o->by); break;
    case 5: got = (uint64_t)((int64_t)o->n % (int64_t)o->by); break;
    case 6: got = o->n / o->by; break;
    case 7: got = o->n % o->by; break;
    case 8: got = (uint64_t)(((unsigned __int128)o->n << 64) / o->by >> 64); break;
    case 9: got = (uint64_t)(((__int128)o->n << 64) % (__int128)o->by); break;
    }
    return wherry_reply(&got, sizeof got);
}
