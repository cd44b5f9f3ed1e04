// A program that does what collectors, shells and servers do at the edges of remote memory; argv[1] says what. It prints "ok", or what is wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(c) do { if (!(c)) { printf("line %d: %s is false (errno %d)\n", __LINE__, #c, errno); exit(1); } } while (0)
#define MIB (1ul << 20)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static char *self;
static char *anonymous(size_t n) { return mmap(0, n, RW, ANON, -1, 0); }
static int all(const char *p, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return 0;
    return 1;
}

static int inside(const void *p)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long a, b;
        if (strstr(line, "wherry-window") && sscanf(line, "%lx-%lx", &a, &b) == 2 && (unsigned long)p >= a && (unsigned long)p < b)
            found = 1;
    }
    fclose(f);
    return found;
}

// Ways to close what a child is not to have, before it starts another program.
static void none(void) {}
static void each(void) { for (int i = 3; i < 1024; i++) close(i); }
static void ranges(void) { close_range(3, ~0u, 0); }
static void from(void) { closefrom(3); }
static void later(void) { close_range(3, ~0u, CLOSE_RANGE_CLOEXEC); }
static void flags(void) { for (int i = 3; i < 1024; i++) fcntl(i, F_SETFD, FD_CLOEXEC); }
static void numbered(void) { for (int i = 3; i < 1024; i++) syscall(SYS_close, i); }
static void numbered_range(void) { syscall(SYS_close_range, 3, ~0u, 0); }

static void closing(void) // children have remote memory whichever way all descriptors are closed before they start
{
    void (*const ways[])(void) = {none, each, ranges, from, later, flags, numbered, numbered_range};
    char *p = anonymous(MIB);
    p[0] = 1;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int shares = 0; shares < 2; shares++) {
            int status = 1;
            pid_t child = shares ? vfork() : fork(); // Python's subprocess does the first
            if (!child) {
                ways[i]();
                execl(self, self, "remote", (char *)0);
                _exit(2);
            }
            CHECK(waitpid(child, &status, 0) == child);
            if (status)
                printf("way %zu, %d: status %#x\n", i, shares, status), exit(1);
        }
    int null = open("/dev/null", O_RDWR);
    CHECK(dup2(null, 199) == 199 && close(199) == 0 && close(199) == -1); // a program may want the number
    CHECK(p[0] == 1);
}

static void remote(void)
{
    CHECK(inside(anonymous(MIB)));
    exit(0);
}

static void advice(void)
{
    static const int harmless[] = {0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23};
    static const int refused[] = {9, 18, 25, 100, 102, 103, 9999, -1};
    char *p = anonymous(4 * MIB);
    memset(p, 7, 4 * MIB);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        CHECK(madvise(p, 4 * MIB, harmless[i]) == 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(madvise(p, 4 * MIB, refused[i]) == -1 && errno == EINVAL);
    CHECK(all(p, 4 * MIB, 7));
    CHECK(madvise(p + MIB, MIB, 24) == 0); // MADV_DONTNEED_LOCKED
    CHECK(all(p, MIB, 7) && all(p + MIB, MIB, 0) && all(p + 2 * MIB, 2 * MIB, 7));
    CHECK(mremap(p, 4 * MIB, 4 * MIB, 64) == MAP_FAILED && errno == EINVAL);
}

static void numbers(void) // the same calls by their numbers
{
    char *p = (char *)syscall(SYS_mmap, 0, 4 * MIB, RW, ANON, -1, 0);
    CHECK(inside(p));
    memset(p, 7, 4 * MIB);
    CHECK(syscall(SYS_madvise, p + MIB, MIB, MADV_DONTNEED) == 0 && all(p, MIB, 7) && all(p + MIB, MIB, 0) && all(p + 2 * MIB, MIB, 7));
    CHECK((char *)syscall(SYS_mmap, p + 2 * MIB, MIB, RW, ANON | MAP_FIXED, -1, 0) == p + 2 * MIB && all(p + 2 * MIB, MIB, 0) && all(p + 3 * MIB, MIB, 7));
    CHECK(inside(p + 2 * MIB));
    CHECK(p = (char *)syscall(SYS_mremap, p, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE, 0));
    CHECK(p != MAP_FAILED && inside(p) && all(p, MIB, 7) && all(p + MIB, 2 * MIB, 0) && all(p + 3 * MIB, MIB, 7) && all(p + 4 * MIB, 4 * MIB, 0));
    CHECK(syscall(SYS_mprotect, p, MIB, PROT_READ) == 0 && syscall(SYS_munmap, p, 8 * MIB) == 0);
    for (int i = 0; i < 8; i++) { // which is there to be written again
        char *q = anonymous(2 * MIB);
        CHECK(all(q, 2 * MIB, 0));
        memset(q, 1, 2 * MIB);
    }
    errno = 0;
    CHECK(syscall(SYS_madvise, p, MIB, 9999) == -1 && errno == EINVAL);
    CHECK((p = mmap(0, MIB, PROT_NONE, ANON, -1, 0)) != MAP_FAILED && !inside(p) && syscall(SYS_munmap, p, MIB) == 0 && syscall(SYS_mprotect, p, MIB, RW) == -1 && errno == ENOMEM);
}

static void keys(void) // protection keys
{
    int key = pkey_alloc(0, PKEY_DISABLE_WRITE), had = key >= 0;
    for (int with = 0; with <= had; with++) {
        char *p = anonymous(MIB);
        memset(p, 7, MIB);
        if (pkey_mprotect(p, MIB, with ? RW : PROT_READ, with ? key : -1) && errno == ENOSYS)
            return;
        CHECK(all(p, MIB, 7) && munmap(p, MIB) == 0);
        for (int i = 0; i < 8; i++) {
            char *q = anonymous(MIB);
            memset(q, 1, MIB);
        }
    }
}

static void low(void)
{
#ifdef __x86_64__
    char *p = mmap(0, MIB, RW, ANON | MAP_32BIT, -1, 0);
    CHECK(p != MAP_FAILED && (uintptr_t)p + MIB <= 1ul << 32 && !inside(p));
#endif
}

static volatile int handled;
static void handler(int signal)
{
    (void)signal;
    int e = errno;
    char *q = anonymous(MIB);
    if (q != MAP_FAILED) {
        q[5] = 1;
        if (madvise(q, MIB, MADV_DONTNEED) || q[5] || mprotect(q, MIB, PROT_READ) || munmap(q, MIB))
            _exit(3);
    }
    handled++;
    errno = e;
}

static void *allocates(void *stop)
{
    void *(*volatile get)(size_t) = malloc;
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        char *p = get(MIB);
        p[1] = 1;
        free(p);
    }
    return 0;
}

static void handlers(void) // a signal's handler maps memory, as a collector's does, while all threads do
{
    int stop = 0, forked = 0;
    pthread_t thread;
    char *kept = anonymous(MIB);
    memset(kept, 5, MIB);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    alarm(40); // a deadlock
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGVTALRM, &act, 0), sigaction(SIGPROF, &act, 0);
    setitimer(ITIMER_PROF, &often, 0);
    pthread_create(&thread, 0, allocates, &stop);
    for (int i = 0; i < 3000 || handled < 50; i++) {
        char *p = anonymous(MIB);
        CHECK(p != MAP_FAILED);
        memset(p, 1, 4096);
        CHECK((p = mremap(p, MIB, 2 * MIB, MREMAP_MAYMOVE)) != MAP_FAILED && p[4095] == 1 && madvise(p, MIB, MADV_DONTNEED) == 0 && munmap(p, 2 * MIB) == 0);
        if (i % 500 == 0) {
            pid_t child = fork();
            if (!child) {
                sigset_t set;
                sigprocmask(SIG_BLOCK, 0, &set);
                _exit(!all(kept, MIB, 5) || sigismember(&set, SIGPROF) || sigismember(&set, SIGTERM));
            }
            int status = 1;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            forked++;
        }
    }
    setitimer(ITIMER_PROF, &never, 0);
    stop = 1;
    pthread_join(thread, 0);
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    CHECK(forked && !sigismember(&set, SIGPROF) && !sigismember(&set, SIGTERM) && all(kept, MIB, 5));
}

static void refused(void) // a fork that the daemon cannot be told of fails, and the program goes on
{
    char *p = anonymous(MIB);
    memset(p, 7, MIB);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        CHECK(child == -1 && errno == ENOMEM);
    }
    CHECK(waitpid(-1, 0, 0) == -1 && errno == ECHILD && all(p, MIB, 7));
    CHECK((p = anonymous(MIB)) != MAP_FAILED);
    memset(p, 8, MIB);
}

static void user(void)
{
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    refused();
}

static void root(void)
{
    CHECK(chroot("/dev") == 0 && chdir("/") == 0);
    refused();
}

static void crowded(void) // fewer descriptors than a fork needs are free, down to none
{
    struct rlimit limit = {256, 256};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = -1, fd;
    while ((fd = dup(1)) >= 0)
        last = fd;
    CHECK(errno == EMFILE);
    char *p = malloc(MIB);
    memset(p, 7, MIB);
    for (int spare = 0; spare < 12; spare++) {
        int status = 0;
        pid_t child = fork();
        if (!child)
            _exit(!all(p, MIB, 7));
        if (child < 0)
            CHECK(errno == ENOMEM && spare < 8);
        else
            CHECK(spare >= 3 && waitpid(child, &status, 0) == child && status == 0);
        CHECK(all(p, MIB, 7));
        for (; last > 2 && close(last); last--)
            ;
        last--;
    }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } ways[] = {{"closing", closing}, {"remote", remote}, {"advice", advice}, {"numbers", numbers},
        {"keys", keys}, {"low", low}, {"handlers", handlers}, {"refused", refused}, {"user", user}, {"root", root}, {"crowded", crowded}};
    self = argv[0];
    for (size_t i = 0; argc == 2 && i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(argv[1], ways[i].name)) {
            ways[i].run();
            printf("ok\n");
            return 0;
        }
    return 2;
}
