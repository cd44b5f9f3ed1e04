// What is run with little local memory: workloads NAME MIB. Each fills MIB of memory and works on it, and prints a checksum of what
// it found and the seconds that it took, filling included.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t state = 88172645463325252u;
static uint64_t next(void) // xorshift64
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void swap(int64_t *a, int64_t *b)
{
    int64_t t = *a;
    *a = *b;
    *b = t;
}

static void sort(int64_t *a, long low, long high) // quicksort; the shorter side first, so that the stack stays short
{
    while (high - low > 16) {
        int64_t pivot = a[low + (high - low) / 2];
        long i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot)
                i++;
            while (a[j] > pivot)
                j--;
            if (i <= j)
                swap(a + i++, a + j--);
        }
        if (j - low < high - i) {
            sort(a, low, j);
            low = i;
        } else {
            sort(a, i, high);
            high = j;
        }
    }
    for (long i = low + 1; i <= high; i++)
        for (long j = i; j > low && a[j - 1] > a[j]; j--)
            swap(a + j - 1, a + j);
}

static uint64_t quicksort(int64_t *a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = (int64_t)next();
    sort(a, 0, (long)n - 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && a[i - 1] > a[i])
            return 0;
        sum = sum * 31 + (uint64_t)a[i];
    }
    return sum;
}

// Text of some 20,000 words, few of them often, is written and counted three times.
enum { WORDS = 20000, SLOTS = 1 << 17 };
static uint64_t wordcount(char *text, size_t n)
{
    struct entry { uint64_t hash, count; } *table = calloc(SLOTS, sizeof *table);
    size_t end = 0;
    if (!table)
        return 0;
    while (end + 16 < n) {
        uint64_t r = next();
        unsigned word = (unsigned)(((r & 0xffff) * (r >> 16 & 0xffff)) >> 16) % WORDS;
        for (unsigned i = 0; i < 3 + word % 8; i++)
            text[end++] = (char)('a' + (word >> i % 4 * 4 & 15));
        text[end++] = ' ';
    }
    memset(text + end, ' ', n - end);
    for (int pass = 0; pass < 3; pass++) {
        uint64_t hash = 14695981039346656037u;
        for (size_t i = 0; i < n; i++) {
            if (text[i] != ' ') {
                hash = (hash ^ (uint8_t)text[i]) * 1099511628211u;
                continue;
            }
            if (i && text[i - 1] != ' ') {
                size_t k = hash % SLOTS;
                while (table[k].hash && table[k].hash != hash)
                    k = (k + 1) % SLOTS;
                table[k].hash = hash;
                table[k].count++;
            }
            hash = 14695981039346656037u;
        }
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < SLOTS; i++)
        sum += table[i].hash * table[i].count;
    return sum;
}

static uint64_t scan(uint64_t *a, size_t n) // one word of each line is read and written, four times over
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        a[i] = next();
    for (int pass = 0; pass < 4; pass++)
        for (size_t i = 0; i < n; i += 8)
            sum += a[i] += (uint64_t)pass + 1;
    return sum;
}

static uint64_t zipf(uint64_t *a, size_t n) // words of pages, of which few are used often, are read and written
{
    const size_t pages = n / 512;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        a[i] = next();
    for (int i = 0; i < 250000; i++) {
        double u = (double)(next() >> 11) * 0x1p-53;
        size_t page = (size_t)((double)pages * pow(u, 4)) * 2654435761u % pages;
        sum += a[page * 512 + next() % 512] += 1;
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t n = strtoul(argv[2], 0, 10) << 20;
    double start = now();
    void *memory = malloc(n);
    if (!memory)
        return 1;
    uint64_t sum = !strcmp(argv[1], "quicksort") ? quicksort(memory, n / 8) : !strcmp(argv[1], "wordcount") ? wordcount(memory, n) :
                   !strcmp(argv[1], "scan") ? scan(memory, n / 8) : !strcmp(argv[1], "zipf") ? zipf(memory, n / 8) : 0;
    printf("%016lx %.6f\n", (unsigned long)sum, now() - start);
    return sum == 0;
}
