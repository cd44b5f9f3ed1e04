/* The native side of the scan benchmark: the same over the same memory, from descriptor 3, compiled with clang -O3 -march=native. It
 * reads a bound per line and answers with the time, in nanoseconds, and the sum. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include "scan.h"

int main(int argc, char **argv)
{
    uint64_t size = argc > 1 ? strtoull(argv[1], 0, 10) : 0, below;
    const uint64_t *v = mmap(0, size, PROT_READ, MAP_SHARED, 3, 0);
    if (v == MAP_FAILED)
        return 1;
    while (scanf("%lu", &below) == 1) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        uint64_t sum = scan(v, size / 8, below);
        clock_gettime(CLOCK_MONOTONIC, &b);
        printf("{\"Ns\":%.0f,\"Sum\":%lu}\n", (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec), sum);
        fflush(stdout);
    }
    return 0;
}
