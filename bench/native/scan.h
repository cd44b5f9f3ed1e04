/* What both sides do: the sum of the values below a bound, in integers, so that any order of the additions gives the same. */
#include <stdint.h>

static inline uint64_t scan(const uint64_t *v, uint64_t n, uint64_t below)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += v[i] < below ? v[i] : 0;
    return sum;
}
