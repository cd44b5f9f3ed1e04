// A program that locks its memory, strays beyond it, or dies: argv[1] says which. It prints "ok", or what is wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(c) do { if (!(c)) { printf("line %d: %s is false (errno %d)\n", __LINE__, #c, errno); fflush(stdout); _exit(1); } } while (0)
#define MIB (1ul << 20)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static char *self;

static void fill(char *p, size_t from, size_t to)
{
    for (size_t i = from; i < to; i += 4096)
        *(size_t *)(p + i) = i + 1;
}

static size_t wrong(const char *p, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i += 4096)
        bad += *(const size_t *)(p + i) != i + 1;
    return bad;
}

// Has a file lie over a part, and gives it up, by munmap or by other memory.
static void over(char *p, size_t n, int unmapped)
{
    int fd = open(self, O_RDONLY);
    CHECK(mmap(p, n, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == p && p[1] == 'E' && close(fd) == 0);
    CHECK(!unmapped || munmap(p, n) == 0);
    CHECK(mmap(p, n, RW, ANON | MAP_FIXED, -1, 0) == p);
    for (size_t i = 0; i < n; i += 4096)
        CHECK(p[i] == 0);
}

static void forked(const char *p, size_t n)
{
    int status = 1;
    pid_t child = fork();
    if (!child) {
        CHECK(wrong(p, n) == 0);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(wrong(p, n) == 0 && wrong(p, n) == 0);
}

static void locks(int how) // all that the program has, and gets, is locked: each page comes from the daemon still
{
    const size_t n = 40 * MIB;
    char *first = malloc(20 * MIB), *p;
    fill(first, 0, 20 * MIB);
    CHECK(mlockall(how) == 0);
    CHECK(p = malloc(n));
    fill(p, 0, n);
    for (int unmapped = 0; unmapped < 2; unmapped++) {
        over(p + 8 * MIB, 16 * MIB, unmapped);
        fill(p, 8 * MIB, 24 * MIB);
        forked(p, n);
    }
    CHECK(wrong(first, 20 * MIB) == 0 && mlockall(how) == 0 && mlock(p, n) == 0 && munlock(p, n) == 0 && wrong(p, n) == 0);
    free(p);
    CHECK((p = malloc(n + 16 * MIB))); // what is free goes elsewhere
    fill(p, 0, n + 16 * MIB);
    forked(p, n + 16 * MIB);
    CHECK(munlockall() == 0);
}

static void current(void) { locks(MCL_CURRENT); }
static void future(void) { locks(MCL_FUTURE); }
static void both(void) { locks(MCL_CURRENT | MCL_FUTURE); }

static sigjmp_buf back;
static void caught(int signal) { siglongjmp(back, signal); }

static void stray(void) // an access beyond what was taken is an error once, and not when the address is an allocation's
{
    void *(*volatile get)(size_t) = malloc; // the compiler knows how much malloc gives
    char *p = get(20 * MIB), *q;
    signal(SIGSEGV, caught);
    signal(SIGBUS, caught);
    for (volatile size_t i = 40 * MIB; i < 100 * MIB; i += 20 * MIB) {
        int got = sigsetjmp(back, 1);
        if (!got)
            p[i] = 1;
        CHECK(got == SIGSEGV);
    }
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1 && read(pipes[0], p + 50 * MIB, 1) == -1 && errno == EFAULT);
    CHECK(q = get(100 * MIB));
    fill(q, 0, 100 * MIB);
    CHECK(wrong(q, 100 * MIB) == 0 && q <= p + 40 * MIB && q + 100 * MIB > p + 80 * MIB);
    forked(q, 100 * MIB);
}

static int dumped(void) // how many parts of the window a dump would have, or no part at all
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    int parts = 0, not = 0, in = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx ", &a, &b) == 2)
            parts += in = strstr(line, "wherry-window") != 0;
        else if (in && !strncmp(line, "VmFlags:", 8))
            not += strstr(line, " dd") != 0;
    }
    fclose(f);
    return !parts || parts != not;
}

static void dumps(void) // what is remote is in no dump
{
    char *p = malloc(40 * MIB), *q;
    CHECK(!dumped());
    fill(p, 0, 40 * MIB);
    for (int unmapped = 0; unmapped < 2; unmapped++) {
        over(p + 8 * MIB, 16 * MIB, unmapped);
        CHECK(!dumped());
    }
    CHECK(mprotect(p, 4 * MIB, PROT_READ) == 0 && !dumped() && madvise(p, 40 * MIB, MADV_DODUMP) == 0 && !dumped());
    free(p);
    CHECK((q = malloc(60 * MIB)) && !dumped()); // what is free goes elsewhere
    int fd = open(self, O_RDONLY), status = 1;
    CHECK(mmap(q + 8 * MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == q + 8 * MIB && !dumped());
    pid_t child = fork();
    if (!child) {
        CHECK(!dumped() && munmap(q + 8 * MIB, MIB) == 0 && !dumped() && malloc(60 * MIB) && !dumped());
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void dies(void)
{
    fill(malloc(20 * MIB), 0, 20 * MIB);
    abort();
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } ways[] = {{"current", current}, {"future", future}, {"both", both}, {"stray", stray}, {"dumps", dumps}, {"dies", dies}};
    self = argv[0];
    for (size_t i = 0; argc == 2 && i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(argv[1], ways[i].name)) {
            ways[i].run();
            printf("ok\n");
            return 0;
        }
    return 2;
}
