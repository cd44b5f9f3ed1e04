/* The native side of the window benchmark: the same pointer chase over the same
 * table, from descriptor 3, compiled with clang -O2. It reads a number of hops
 * per line and answers with the time for one, in nanoseconds, and where it ended. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

__attribute__((noinline)) static uint64_t chase(const uint64_t *table, uint64_t row, uint64_t left)
{
    for (; left; left--)
        row = table[row];
    return row;
}

int main(int argc, char **argv)
{
    uint64_t size = argc > 1 ? strtoull(argv[1], 0, 10) : 0, row = 0, left;
    const uint64_t *table = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
    if (table == MAP_FAILED)
        return 1;
    while (scanf("%lu", &left) == 1) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        row = chase(table, row, left);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
        printf("{\"Ns\":%.4f,\"Row\":%lu}\n", ns / left, row);
        fflush(stdout);
    }
    return 0;
}
