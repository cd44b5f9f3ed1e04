// A program whose memory is remote; argv[1] says what it does. It prints "ok", or what is wrong.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(c) do { if (!(c)) { printf("line %d: %s is false (errno %d)\n", __LINE__, #c, errno); exit(1); } } while (0)
#define MIB (1ul << 20)

// The C library's syscall itself, past the one that is taken over.
static long past(long number, long a, long b, long c)
{
    long (*call)(long, ...) = (long (*)(long, ...))dlsym(dlopen("libc.so.6", RTLD_LAZY), "syscall");
    return call(number, a, b, c);
}

static int inside(const void *p) // the window is the only shared mapping of a memfd of this name
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

static uint64_t mix(uint64_t x) { x ^= x >> 33; x *= 0xff51afd7ed558ccdul; x ^= x >> 33; return x; }
static void put(uint64_t *a, size_t n, uint64_t salt) { for (size_t i = 0; i < n; i++) a[i] = mix(i + salt); }
static size_t wrong(uint64_t *a, size_t n, uint64_t salt) { size_t bad = 0; for (size_t i = 0; i < n; i++) bad += a[i] != mix(i + salt); return bad; }
static size_t nonzero(char *p, size_t n) { size_t bad = 0; for (size_t i = 0; i < n; i++) bad += p[i] != 0; return bad; }

static void sizes(void) // more than is local, by every way to allocate
{
    size_t n = 12 * MIB;
    uint64_t *a = malloc(n), *b = calloc(1, n), *c = NULL, *d = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(posix_memalign((void **)&c, 1 << 20, n) == 0 && (uintptr_t)c % (1 << 20) == 0);
    CHECK(inside(a) && inside(b) && inside(c) && inside(d) && !inside(malloc(1000)));
    CHECK(nonzero((char *)b, n) == 0 && nonzero((char *)d, n) == 0);
    put(a, n / 8, 1), put(b, n / 8, 2), put(c, n / 8, 3), put(d, n / 8, 4);
    CHECK(wrong(a, n / 8, 1) == 0 && wrong(b, n / 8, 2) == 0 && wrong(c, n / 8, 3) == 0 && wrong(d, n / 8, 4) == 0);
    free(b);
    CHECK(a = realloc(a, 2 * n));
    CHECK(inside(a) && wrong(a, n / 8, 1) == 0);
    CHECK(a = realloc(a, 100));
    CHECK(!inside(a) && wrong(a, 12, 1) == 0);
    CHECK(a = realloc(a, n));
    CHECK(inside(a) && wrong(a, 12, 1) == 0);
    free(c);
    char *e = calloc(1, n); // where b or c was
    CHECK(inside(e) && nonzero(e, n) == 0 && wrong(d, n / 8, 4) == 0);
}

static void maps(void)
{
    size_t n = 8 * MIB;
    char *m = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 7, n);
    CHECK(munmap(m + 2 * MIB, MIB) == 0); // a hole
    CHECK(m[2 * MIB - 1] == 7 && m[3 * MIB] == 7);
    char *h = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(h == m + 2 * MIB && nonzero(h, MIB) == 0);
    CHECK(madvise(m + 4 * MIB, MIB, MADV_DONTNEED) == 0 && nonzero(m + 4 * MIB, MIB) == 0 && m[5 * MIB] == 7 && m[4 * MIB - 1] == 7);
    char *f = mmap(m + 6 * MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(f == m + 6 * MIB && inside(f) && nonzero(f, MIB) == 0 && m[7 * MIB] == 7);
    CHECK(munmap(f, MIB) == 0);
    f = mmap(m + 6 * MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(f, 9, MIB);
    int fd = open("/proc/self/exe", O_RDONLY); // a file over a part, and the part used again
    CHECK(mmap(f, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == f && memcmp(f, "\177ELF", 4) == 0 && f[4096] == 9);
    CHECK(munmap(f, MIB) == 0);
    f = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(f == m + 6 * MIB && nonzero(f, MIB) == 0);
    memset(f, 1, MIB);
    m = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    put((uint64_t *)m, n / 8, 5);
    char *g = mremap(m, n, 3 * n, MREMAP_MAYMOVE);
    CHECK(g != MAP_FAILED && inside(g) && wrong((uint64_t *)g, n / 8, 5) == 0 && nonzero(g + n, 2 * n) == 0);
    CHECK(mremap(g, 3 * n, n / 2, 0) == g && wrong((uint64_t *)g, n / 16, 5) == 0);
    char *away = mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!inside(away) && mremap(g, n / 2, n / 2, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away && wrong((uint64_t *)away, n / 16, 5) == 0);
    CHECK(mprotect(f, 4096, PROT_NONE) == 0 && munmap(f, MIB) == 0);
    CHECK((f = malloc(MIB)) && (memset(f, 3, MIB), f[0] == 3));
}

enum { THREADS = 4, COUNT = 3 * MIB };
static uint64_t *shared;
static void *add(void *x)
{
    for (int r = 0; r < 3; r++)
        for (size_t i = (size_t)x; i < COUNT; i += THREADS)
            shared[i]++;
    return 0;
}

static void threads(void)
{
    shared = malloc(COUNT * 8);
    for (size_t i = 0; i < COUNT; i++)
        shared[i] = i;
    pthread_t t[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(t + i, 0, add, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(shared[i] == i + 3);
}

static void *churn(void *x)
{
    uint64_t s = (uint64_t)x + 1;
    struct { uint64_t *p; size_t n; uint64_t salt; } have[8] = {{0}};
    for (int i = 0; i < 60; i++) {
        s = mix(s + i);
        int k = s % 8;
        if (have[k].p && wrong(have[k].p, have[k].n / 8, have[k].salt))
            return "an allocation holds other bytes than were written";
        free(have[k].p);
        have[k].n = 128 * 1024 + (s >> 8) % (512 * 1024);
        have[k].salt = s;
        if (!(have[k].p = s >> 60 & 1 ? calloc(1, have[k].n) : malloc(have[k].n)))
            return "no memory";
        if (s >> 60 & 1 && nonzero((char *)have[k].p, have[k].n))
            return "calloc is not zero";
        put(have[k].p, have[k].n / 8, s);
    }
    return 0;
}

static void churns(void) // allocations come and go in several threads
{
    pthread_t t[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(t + i, 0, churn, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *why = 0;
        pthread_join(t[i], &why);
        if (why)
            printf("%s\n", (char *)why), exit(1);
    }
}

extern int io_uring_queue_init(unsigned, void *, unsigned) __attribute__((weak)); // liburing's, which is refused: pages that the kernel has pinned may leave

static void files(void) // the kernel reads and writes remote memory
{
    size_t n = 12 * MIB;
    uint64_t *a = malloc(n), *b = malloc(n);
    put(a, n / 8, 6);
    uint32_t ring[64] = {0};
    CHECK(syscall(SYS_io_uring_setup, 4, ring) == -1 && errno == ENOSYS && io_uring_queue_init && io_uring_queue_init(4, ring, 0) == -ENOSYS);
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    CHECK(fd >= 0 && !(fcntl(fd, F_GETFL) & O_DIRECT));
    CHECK(fcntl(fd, F_SETFL, O_DIRECT) == 0 && !(fcntl(fd, F_GETFL) & O_DIRECT));
    CHECK(write(fd, a, n) == (ssize_t)n && lseek(fd, 0, SEEK_SET) == 0 && read(fd, b, n) == (ssize_t)n);
    CHECK(wrong(b, n / 8, 6) == 0 && wrong(a, n / 8, 6) == 0);
}

static int ended(pid_t pid)
{
    int st = 0;
    int done = pid > 0 && waitpid(pid, &st, 0) == pid;
    if (done && st)
        printf("process %d ended with status %#x\n", (int)pid, st);
    return done && st == 0;
}

static void forks(void) // a child sees the memory as it was, and what either writes is its own
{
    size_t n = 12 * MIB;
    uint64_t *a = malloc(n);
    put(a, n / 8, 7);
    void *freed = malloc(n / 2);
    memset(freed, 1, n / 2);
    free(freed);
    pid_t pid = fork();
    if (pid == 0) {
        if (wrong(a, n / 8, 7))
            _exit(1);
        put(a, n / 8, 8);
        char *c = calloc(1, n / 2);
        if (!c || nonzero(c, n / 2) || wrong(a, n / 8, 8))
            _exit(2);
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(wrong(a, n / 8, 8) != 0);
        put(a, n / 8, 9);
        _exit(ended(grandchild) && wrong(a, n / 8, 9) == 0 ? 0 : 3);
    }
    put(a, n / 16, 10);
    CHECK(ended(pid));
    CHECK(wrong(a, n / 16, 10) == 0 && wrong(a, n / 8, 7) == n / 16);
    CHECK(system("exec true") == 0);
    for (int i = 0; i < 5; i++)
        if ((pid = fork()) == 0)
            execl("/bin/true", "true", (char *)0);
        else
            CHECK(ended(pid));
    CHECK(wrong(a, n / 16, 10) == 0);
}

static void full(void) // the pool is full: an error, and life goes on
{
    char *a = malloc(20 * MIB);
    CHECK(a);
    memset(a, 1, 20 * MIB);
    errno = 0;
    CHECK(malloc(200 * MIB) == 0 && errno == ENOMEM);
    CHECK(mmap(0, 200 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    free(a);
    CHECK((a = calloc(1, 25 * MIB)) && nonzero(a, 25 * MIB) == 0);
    errno = 0;
    CHECK(fork() == -1 && errno == ENOMEM); // there is no room for a copy
    CHECK(nonzero(a, 25 * MIB) == 0);
}

static void lose(void) // says that it is ready, and then reads its memory until that fails
{
    size_t n = 12 * MIB;
    volatile char *a = malloc(n);
    memset((char *)a, 1, n);
    printf("ready\n");
    fflush(stdout);
    getchar();
    for (;;)
        for (size_t i = 0; i < n; i += 4096)
            if (a[i] != 1)
                printf("other data\n"), exit(1);
}

static void grows(void) // an allocation grows into one that was just freed, while others that lie before it were freed too
{
    const size_t k = 256 << 10;
    void *(*volatile get)(size_t) = malloc; // so that the compiler leaves them all in
    void (*volatile give)(void *) = free;
    void *a = get(4 * k), *b = get(k), *w = get(k), *c = get(4 * k), *d = get(k);
    char *p = get(k), *next = get(k), *u = get(k), *big = get(4 * k), *end = get(k);
    CHECK(next == p + k && inside(w) && inside(u) && inside(end));
    give(a), give(c), give(big); // told at once, being large
    give(b), give(d), give(next); // told together, later
    CHECK(realloc(p, 2 * k) == p);
    put((uint64_t *)p, 2 * k / 8, 1);
    for (int i = 0; i < 20; i++) {
        char *x = get(k);
        CHECK((x + k <= p || x >= p + 2 * k) && (x + k <= end || x >= end + k));
        memset(x, 9, k);
    }
    CHECK(wrong((uint64_t *)p, 2 * k / 8, 1) == 0);
}

static void closes(void) // a program that closes descriptors that it does not know, as daemons do, and uses the low ones
{
    size_t n = 12 * MIB;
    uint64_t *a = malloc(n), *b = malloc(n);
    put(a, n / 8, 1);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != null)
            dup2(null, fd);
    CHECK(wrong(a, n / 8, 1) == 0);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    put(b, n / 8, 2);
    CHECK(wrong(a, n / 8, 1) == 0);
    CHECK(close_range(3, ~0u, 0) == 0 && wrong(b, n / 8, 2) == 0);
    closefrom(3);
    CHECK(wrong(a, n / 8, 1) == 0);
    CHECK(malloc(MIB)); // the daemon still hears
    pid_t child = fork();
    if (!child)
        _exit(wrong(a, n / 8, 1) != 0);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void hides(void) // the same, behind the C library's back
{
    size_t n = 12 * MIB;
    uint64_t *a = malloc(n);
    put(a, n / 8, 1);
    past(SYS_close_range, 3, ~0u, 0);
    CHECK(wrong(a, n / 8, 1) == 0); // or a signal
}

static volatile int stop_small;
static void *small_ones(void *x)
{
    while (!stop_small) {
        void *p = malloc(64 << 10), *q = calloc(1, 64 << 10);
        if (!p || !q)
            return "a small allocation failed";
        free(p), free(q);
    }
    return x;
}

static void resolves(void) // functions are called for the first time while other threads allocate
{
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(t + i, 0, small_ones, 0);
    usleep(2000);
    free(memalign(64, 100)), usleep(300);
    free(realloc(malloc(10), 1000)), usleep(300);
    CHECK(malloc_usable_size(malloc(100)) >= 100);
    usleep(300);
    close(open("/dev/null", O_RDONLY)), usleep(300);
    close(openat(AT_FDCWD, "/dev/null", O_RDONLY)), usleep(300);
    fcntl(0, F_GETFD), usleep(300);
    stop_small = 1;
    for (int i = 0; i < 2; i++) {
        void *why = 0;
        pthread_join(t[i], &why);
        if (why)
            printf("%s\n", (char *)why), exit(1);
    }
}

static pthread_mutex_t owned = PTHREAD_MUTEX_INITIALIZER;
static void own(void) { pthread_mutex_lock(&owned); }
static void disown(void) { pthread_mutex_unlock(&owned); }
static void *allocates(void *x)
{
    void *(*volatile get)(size_t) = malloc;
    while (!stop_small) {
        own();
        free(get(MIB));
        disown();
    }
    return x;
}

static void handlers(void) // a library, as jemalloc, holds a lock while it asks for memory, and takes that lock before each fork
{
    uint64_t *a = malloc(4 * MIB);
    put(a, MIB / 2, 1);
    pthread_atfork(own, disown, disown);
    pthread_t t;
    pthread_create(&t, 0, allocates, 0);
    alarm(20); // a deadlock
    for (int i = 0; i < 20; i++) {
        int status = 1;
        pid_t child = fork();
        if (!child)
            _exit(wrong(a, MIB / 2, 1) != 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop_small = 1;
    pthread_join(t, 0);
}

static void small(void) // another malloc (jemalloc, preloaded) whose memory the window is: its allocations are not the window's to free
{
    enum { COUNT = 2000 };
    static struct { uint64_t *p; size_t n; uint64_t salt; } have[COUNT];
    uint64_t s = 3;
    int remote = 0;
    for (int i = 0; i < 6 * COUNT; i++) {
        s = mix(s + i);
        int k = s % COUNT;
        CHECK(!have[k].p || !wrong(have[k].p, have[k].n / 8, have[k].salt));
        if (have[k].p && s >> 62 == 3) {
            size_t n = 8 + (s >> 8) % (16 * 1024);
            CHECK(have[k].p = realloc(have[k].p, n));
            CHECK(!wrong(have[k].p, (n < have[k].n ? n : have[k].n) / 8, have[k].salt));
            have[k].n = n;
        } else {
            free(have[k].p);
            have[k].n = 8 + (s >> 8) % (s >> 60 == 1 ? 300 * 1024 : 8 * 1024);
            CHECK(have[k].p = malloc(have[k].n));
        }
        have[k].salt = s;
        CHECK(malloc_usable_size(have[k].p) >= have[k].n);
        put(have[k].p, have[k].n / 8, s);
        if (i % 1000 == 0)
            remote += inside(have[k].p);
    }
    CHECK(remote > 10);
}

static void *little(void *x)
{
    uint64_t *have[64] = {0}, s = (uint64_t)x;
    while (!stop_small) {
        s = mix(s + 1);
        int k = s % 64;
        free(have[k]);
        have[k] = malloc(1 + (s >> 8) % (100 << 10));
        if (have[k])
            *(char *)have[k] = 1;
    }
    return 0;
}

extern void *_ZnwmSt11align_val_t(size_t, size_t) __attribute__((weak));        // operator new(size_t, std::align_val_t)
extern void _ZdlPvmSt11align_val_t(void *, size_t, size_t) __attribute__((weak)); // and its delete
extern void dallocx(void *, int) __attribute__((weak));
extern void sdallocx(void *, size_t, int) __attribute__((weak));
extern size_t sallocx(void *, int) __attribute__((weak));

static void aligned(void) // that malloc's C++ operators, which take from one of its functions and free by another
{
    CHECK(_ZnwmSt11align_val_t && _ZdlPvmSt11align_val_t && dallocx && sdallocx && sallocx);
    for (size_t n = 1000; n < 4 * MIB; n = 2 * n + 100) {
        uint64_t *p = _ZnwmSt11align_val_t(n, 64), *q = malloc(n), *r = malloc(n);
        CHECK(p && q && r && (uintptr_t)p % 64 == 0);
        put(p, n / 8, 1), put(q, n / 8, 2), put(r, n / 8, 3);
        CHECK(!wrong(p, n / 8, 1) && !wrong(q, n / 8, 2) && !wrong(r, n / 8, 3));
        _ZdlPvmSt11align_val_t(p, n, 64);
        CHECK(sallocx(q, 0) >= n && sallocx(q, 0) < n + n / 4 + 4096);
        dallocx(q, 0);
        sdallocx(r, n, 0);
    }
}

static void smallforks(void) // that malloc takes its locks before each fork, and holds them while it asks for memory
{
    uint64_t *a = malloc(4 * MIB);
    put(a, MIB / 2, 1);
    pthread_t t[2];
    for (size_t i = 0; i < 2; i++)
        pthread_create(t + i, 0, little, (void *)(i + 1));
    alarm(30); // a deadlock
    for (int i = 0; i < 20; i++) {
        int status = 1;
        pid_t child = fork();
        if (!child) {
            char *b = malloc(300 << 10), *c = malloc(100);
            _exit(!b || !c || (memset(b, 1, 300 << 10), free(b), free(c), wrong(a, MIB / 2, 1) != 0));
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop_small = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
}

static void caught(int s, siginfo_t *i, void *c) { (void)s, (void)i, (void)c, _exit(77); }

static void streams(void) // a child whose C library touches memory of the window before the child's own handlers have run: files, keys
{
    struct sigaction own = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_ONSTACK}, is;
    stack_t stack = {.ss_sp = malloc(100 << 10), .ss_size = 100 << 10};
    CHECK(inside(stack.ss_sp) && sigaltstack(&stack, 0) == 0);
    sigset_t segv, mask;
    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    CHECK(sigaction(SIGSEGV, &own, 0) == 0 && sigprocmask(SIG_BLOCK, &segv, 0) == 0);
    FILE *f[8];
    for (int i = 0; i < 8; i++)
        CHECK((f[i] = fopen("/proc/self/exe", "r")) != 0 && getc(f[i]) == 0177);
    CHECK(inside(f[0]));
    for (int i = 0; i < 40; i++) { // the later ones are in an allocation of the thread's
        pthread_key_t k;
        CHECK(pthread_key_create(&k, 0) == 0 && pthread_setspecific(k, f) == 0);
    }
    pthread_t t[2];
    for (size_t i = 0; i < 2; i++)
        pthread_create(t + i, 0, little, (void *)(i + 1));
    alarm(60); // a deadlock
    for (int i = 0; i < 20; i++) {
        int status = 1;
        pid_t child = fork();
        if (!child) {
            sigaction(SIGSEGV, 0, &is);
            sigprocmask(SIG_BLOCK, 0, &mask);
            if (is.sa_sigaction != caught || !sigismember(&mask, SIGSEGV))
                _exit(2);
            for (int k = 0; k < 8; k++)
                if (getc(f[k]) != 'E')
                    _exit(3);
            if (i == 19) { // its own again
                sigprocmask(SIG_UNBLOCK, &segv, 0);
                *(volatile char *)8 = 1;
            }
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (i == 19 ? 77 : 0));
    }
    CHECK(sigaction(SIGSEGV, 0, &is) == 0 && is.sa_sigaction == caught && sigprocmask(SIG_BLOCK, 0, &mask) == 0 && sigismember(&mask, SIGSEGV));
    stop_small = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
}

static char *edge(int upper) // where the window begins, or ends
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512], *low = 0, *high = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long a, b;
        if (strstr(line, "wherry-window") && sscanf(line, "%lx-%lx", &a, &b) == 2) {
            low = low ? low : (char *)a;
            high = (char *)b;
        }
    }
    fclose(f);
    return upper ? high : low;
}

static void borders(void) // what begins outside the window and ends inside, and files that are mapped over it
{
    const size_t k = 256 << 10;
    const int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *low = edge(0), *m = mmap(0, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *old;
    CHECK(m == low);
    CHECK(mmap(low - k, k, PROT_READ | PROT_WRITE, fixed | MAP_FIXED_NOREPLACE, -1, 0) == low - k);
    memset(low - k, 5, k + 4 * MIB);
    CHECK(madvise(low - k, 2 * k, MADV_DONTNEED) == 0 && nonzero(low - k, 2 * k) == 0 && low[2 * k] == 5);
    memset(low - k, 6, 2 * k);
    CHECK(mprotect(low - k, 2 * k, PROT_READ) == 0 && low[0] == 6 && mprotect(low - k, 2 * k, PROT_READ | PROT_WRITE) == 0);
    CHECK(mmap(low - k, 2 * k, PROT_READ | PROT_WRITE, fixed, -1, 0) == low - k && nonzero(low - k, 2 * k) == 0 && low[2 * k] == 5 && inside(low));
    memset(low - k, 7, 2 * k);
    CHECK(munmap(low - k, 2 * k) == 0 && low[2 * k] == 5); // as a malloc does that joins its mappings
    CHECK((old = mmap(0, k, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) == low && nonzero(old, k) == 0);
    char *r = low - k;
    CHECK(mmap(r, k, PROT_READ | PROT_WRITE, fixed | MAP_FIXED_NOREPLACE, -1, 0) == r); // it was free again
    CHECK(munmap(r, k) == 0);

    int fd = open("/proc/self/exe", O_RDONLY);
    char *f = m + MIB;
    CHECK(mmap(f, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == f);
    f[0] = 'x';
    CHECK(madvise(f - 4096, 16384, MADV_DONTNEED) == 0 && memcmp(f, "\177ELF", 4) == 0); // the file again, and zeros beside it
    CHECK(nonzero(f - 4096, 4096) == 0 && nonzero(f + 8192, 4096) == 0 && f[-4097] == 5 && f[12288] == 5);
    f[0] = 'y';
    pid_t child = fork(); // inherits what is mapped there
    if (!child)
        _exit(f[0] != 'y' || f[1] != 'E' || m[2 * MIB] != 5 || nonzero(f + 8192, 4096) || !memset(f - 4096, 1, 16384));
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && f[0] == 'y');

    char *away = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0); // moved over the window
    away[0] = 'z';
    CHECK(mremap(away, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, m + 3 * MIB) == m + 3 * MIB && m[3 * MIB] == 'z' && m[3 * MIB + 8192] == 5);
    CHECK(munmap(m, 4 * MIB) == 0);
    CHECK((m = mmap(0, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) == low && nonzero(m, 4 * MIB) == 0);
    for (size_t i = 0; i < 4 * MIB; i += 4096)
        CHECK(inside(m + i));
}

static void mistakes(void) // calls that the system refuses leave the memory as it was, for the program and for its children
{
    size_t n = 4 * MIB;
    const int fixed = MAP_PRIVATE | MAP_FIXED;
    char *a = malloc(n), *away = mmap(0, 8192, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    put((uint64_t *)a, n / 8, 1);
    char *at = (char *)((uintptr_t)(a + MIB) & ~4095ul);
    CHECK(inside(at) && away != MAP_FAILED);
    CHECK(mmap(at, 8192, PROT_READ, fixed, 1000, 0) == MAP_FAILED && errno == EBADF);
    int fd = open("/dev/null", O_WRONLY);
    CHECK(mmap(at, 8192, PROT_READ, fixed, fd, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(at, 8192, PROT_READ, MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(away, 8192, 8192, MREMAP_FIXED, at) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(away + (64 << 20), 8192, 8192, MREMAP_FIXED | MREMAP_MAYMOVE, at) == MAP_FAILED && errno == EFAULT);
    CHECK(mprotect(at, 8192, 1 << 20) == -1 && errno == EINVAL);
    CHECK(wrong((uint64_t *)a, n / 8, 1) == 0);
    int status = 1;
    pid_t child = fork();
    if (!child)
        _exit(wrong((uint64_t *)a, n / 8, 1) != 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(madvise(at, 8192, MADV_DONTNEED) == 0 && nonzero(at, 8192) == 0);
}

static void within(void) // what is done within an allocation does not end it there
{
    const size_t n = 4 * MIB, k = 8192;
    void *(*volatile again)(void *, size_t) = realloc;
    for (int what = 0; what < 4; what++) {
        char *a = malloc(n), *hole = a + (what == 3 ? 0 : MIB);
        put((uint64_t *)a, n / 8, 2);
        CHECK(inside(a) && (uintptr_t)a % 4096 == 0 && malloc_usable_size(a) >= n);
        size_t have = malloc_usable_size(a);
        if (what == 0)
            CHECK(mprotect(hole, k, PROT_READ) == 0);
        else if (what == 1)
            CHECK(mmap(hole, k, PROT_READ, MAP_PRIVATE | MAP_FIXED, open("/proc/self/exe", O_RDONLY), 0) == hole);
        else
            CHECK(mmap(hole, k, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole && nonzero(hole, k) == 0);
        CHECK(malloc_usable_size(a) == have);
        char *block = malloc(MIB); // so that it has to move
        a = again(a, 8 * MIB);
        CHECK(a);
        size_t bad = wrong((uint64_t *)a, n / 8, 2);
        CHECK(what == 0 ? bad == 0 : bad > 0 && bad <= k / 8);
        CHECK(wrong((uint64_t *)(a + n - MIB), 0, 2) == 0 && (what != 1 || memcmp(a + MIB, "\177ELF", 4) == 0));
        char *b = malloc(n); // which lies where the other was
        memset(b, 3, n);
        CHECK(wrong((uint64_t *)a, n / 8, 2) == bad);
        free(a), free(b), free(block);
    }
    char *rest = malloc(n); // a piece that a program gives back on its own is nobody's, and not the next allocation's
    put((uint64_t *)rest, n / 8, 4);
    CHECK(munmap(rest + MIB, MIB) == 0);
    char *next = malloc(MIB);
    CHECK(malloc_usable_size(next) == MIB);
    memset(next, 5, MIB);
    free(next);
    for (int i = 0; i < 8; i++)
        memset(malloc(MIB), 6, MIB);
    CHECK(wrong((uint64_t *)rest, n / 8, 4) <= MIB / 8);
}

enum { ROUND = 1024 };
static volatile uint64_t turn, turns_over;
static void *takes_turns(void *pages) // writes a turn's number to a page of the window, and then says that it has
{
    for (uint64_t k = 1; !turns_over; k++) {
        ((volatile uint64_t *)pages)[k % ROUND * 512] = k;
        turn = k;
    }
    return 0;
}

static void moments(void) // a child sees the window and all other memory of one moment, whatever other threads do meanwhile
{
    pthread_t t;
    volatile uint64_t *pages = malloc(ROUND * 4096);
    for (int i = 0; i < ROUND; i++)
        pages[i * 512] = 0;
    CHECK(inside((void *)pages) && pthread_create(&t, 0, takes_turns, (void *)pages) == 0);
    while (turn < 100)
        sched_yield();
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            uint64_t k = turn, next = pages[(k + 1) % ROUND * 512];
            for (uint64_t j = 0; j < ROUND - 1 && j < k; j++)
                if (pages[(k - j) % ROUND * 512] != k - j)
                    _exit(2);
            _exit(next == k + 1 || next + ROUND == k + 1 || !next ? 0 : 3);
        }
        int status = 0;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    turns_over = 1;
    pthread_join(t, 0);
}

static void heap(void) // what is small stays here
{
    for (int i = 0; i < 160; i++)
        memset(malloc(100 << 10), i, 100 << 10);
}

static void reuses(void) // the same amounts come and go, a part of what may be local at a time; then more at once
{
    for (uint64_t round = 0; round < 50; round++) {
        uint64_t *a = malloc(MIB), *b = malloc(MIB / 2);
        CHECK(inside(a) && inside(b));
        put(a, MIB / 8, round), put(b, MIB / 16, ~round);
        CHECK(wrong(a, MIB / 8, round) == 0 && wrong(b, MIB / 16, ~round) == 0);
        free(a), free(b);
    }
    uint64_t *clear = calloc(1, 2 * MIB);
    CHECK(nonzero((char *)clear, 2 * MIB) == 0);
    for (int i = 0; i < 8; i++)
        memset(malloc(2 * MIB), i, 2 * MIB);
}

static void *anonymous(size_t n)
{
    void *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? 0 : p;
}

static void fragments(void) // what is free is enough, and does not lie together
{
    uint64_t *a = anonymous(56 * MIB), *small = anonymous(MIB);
    CHECK(a && small);
    put(a, 56 * MIB / 8, 1), put(small, MIB / 8, 2);
    munmap(a, 56 * MIB);
    uint64_t *c = anonymous(72 * MIB); // of 96, where 56 are free before it
    CHECK(c && nonzero((char *)c, 72 * MIB) == 0);
    put(c, 72 * MIB / 8, 3);
    CHECK(wrong(c, 72 * MIB / 8, 3) == 0 && wrong(small, MIB / 8, 2) == 0);
    munmap(c, 72 * MIB);
    CHECK(a = anonymous(64 * MIB)); // where the first was
    CHECK(nonzero((char *)a, 64 * MIB) == 0 && wrong(small, MIB / 8, 2) == 0);
}

static void fragmentforks(void) // arrays of many sizes come and go for long, with small ones between them, and children
{
    enum { SMALL = 6 };
    uint64_t *small[SMALL] = {0};
    size_t n[SMALL] = {0};
    srand(1);
    for (uint64_t round = 1; round <= 60; round++) {
        size_t k = (size_t)rand() % SMALL, big = (20 + (size_t)rand() % 45) * MIB + (size_t)rand() % 256 * 4096;
        uint64_t *a = anonymous(big);
        CHECK(a);
        for (size_t i = 0; i < big / 8; i += 512 * (1 + (size_t)rand() % 8)) {
            CHECK(a[i] == 0);
            a[i] = mix(i + round);
        }
        free(small[k]);
        n[k] = MIB / 2 + (size_t)rand() % 512 * 4096;
        CHECK(small[k] = malloc(n[k]));
        put(small[k], n[k] / 8, k);
        CHECK(*a == mix(round));
        pid_t pid = round % 20 ? 0 : fork();
        if (round % 20 == 0 && pid == 0) {
            for (k = 0; k < SMALL; k++)
                if (wrong(small[k], small[k] ? n[k] / 8 : 0, k))
                    _exit(1);
            munmap(a, big);
            uint64_t *b = anonymous(big + 8 * MIB);
            _exit(!b || nonzero((char *)b, big) ? 2 : 0);
        }
        CHECK(round % 20 || ended(pid));
        for (k = 0; k < SMALL; k++)
            CHECK(wrong(small[k], small[k] ? n[k] / 8 : 0, k) == 0);
        munmap(a, big);
    }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } all[] = {{"sizes", sizes}, {"maps", maps}, {"threads", threads}, {"churn", churns},
        {"files", files}, {"forks", forks}, {"moments", moments}, {"full", full}, {"lose", lose}, {"grows", grows},
        {"closes", closes}, {"hides", hides}, {"resolves", resolves}, {"handlers", handlers}, {"borders", borders}, {"mistakes", mistakes}, {"within", within}, {"heap", heap}, {"reuses", reuses}, {"fragments", fragments}, {"fragmentforks", fragmentforks}, {"small", small}, {"aligned", aligned}, {"smallforks", smallforks}, {"streams", streams}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc == 2 && !strcmp(argv[1], all[i].name)) {
            all[i].run();
            printf("ok\n");
            return 0;
        }
    return 2;
}
