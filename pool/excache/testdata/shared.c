// Maps memory that others have too, as any program maps a file: shared MODE FILE.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The C library's syscall itself, past the one that is taken over.
static long past(long number, long a, long b, long c)
{
    long (*call)(long, ...) = (long (*)(long, ...))dlsym(dlopen("libc.so.6", RTLD_LAZY), "syscall");
    return call(number, a, b, c);
}

static void die(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static size_t size;

static void *map(const char *path, int write)
{
    struct stat st;
    int fd = open(path, write ? O_RDWR : O_RDONLY);
    if (fd < 0 || fstat(fd, &st))
        die(path);
    size = st.st_size;
    void *p = mmap(0, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die("mmap");
    close(fd);
    return p;
}

/* Words of the file are their number times a factor. Each is looked at, in a row and then here and there. */
static void check(const volatile uint64_t *w, uint64_t factor)
{
    size_t n = size / 8, at = 1;
    for (size_t i = 1; i < n; i++)
        if (w[i] != i * factor)
            printf("word %zu is %lu, not %lu\n", i, (unsigned long)w[i], (unsigned long)(i * factor)), exit(1);
    for (int i = 0; i < 3000; i++, at = (at * 6364136223846793005u + 1442695040888963407u) >> 13)
        if (at % n && w[at % n] != at % n * factor)
            printf("word %zu is %lu\n", at % n, (unsigned long)w[at % n]), exit(1);
    for (const volatile uint8_t *b = (void *)w; (size_t)b + size & 4095; b++) /* the rest of the last page */
        if (b[size])
            printf("byte %zu behind the end\n", (size_t)(b - (uint8_t *)w)), exit(1);
}

static void expect(const char *what, int yes, int error)
{
    if (!yes || errno != error)
        die(what);
}

/* What cannot be says so, and is never zeros. */
static void refused(const char *path)
{
    char b[8], name[64];
    int fd = open(path, O_RDONLY);
    volatile uint64_t *w = map(path, 0);
    expect("read", read(fd, b, 8) < 0, EBADF);
    expect("pread", pread(fd, b, 8, 0) < 0, EBADF);
    expect("write", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, EACCES);
    expect("a private copy", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED, EACCES);
    expect("behind the end", mmap(0, size + 8192, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, EINVAL);
    expect("mprotect", mprotect((void *)w, 4096, PROT_READ | PROT_WRITE) < 0, EACCES);
    expect("madvise", madvise((void *)w, 4096, MADV_REMOVE) < 0, EINVAL);
    expect("no such", open("/wherry/none", O_RDONLY) < 0, ENOENT);
    expect("a file of the system", mmap(0, 4096, PROT_READ, MAP_SHARED, 77, 0) == MAP_FAILED, EBADF);
    int other = dup(fd); /* another descriptor is the same share */
    close(fd);
    volatile uint64_t *p = mmap(0, 8192, PROT_READ, MAP_PRIVATE, other, 4096);
    if (p == MAP_FAILED)
        die("mmap of a part");
    if (p[1] != 513)
        printf("a part: %lu\n", (unsigned long)p[1]), exit(1);
    munmap((void *)p, 8192);
    munmap((void *)(w + 512 * 8), 4096 * 8); /* what is left of a mapping is one still */
    if (w[1] != 1 || w[512 * 16] != 512 * 16)
        printf("what is left: %lu, %lu\n", (unsigned long)w[1], (unsigned long)w[512 * 16]), exit(1);
    snprintf(name, sizeof name, "/proc/self/fd/%d", other);
    (void)!chdir("/");
    if (madvise((void *)w, 4096, MADV_DONTNEED) || w[3] != 3)
        die("read again");
}

/* Changes all, waits until a reader has seen it, and changes all again. */
static void writes(const char *path)
{
    volatile uint64_t *w = map(path, 1);
    int other = open(path, O_RDWR);
    volatile uint64_t *again = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0); /* in one process there may be two */
    if (again == MAP_FAILED)
        die("mmap again");
    check(w, 1);
    for (size_t i = size / 8 - 1; i > 0; i--)
        w[i] = 2 * i;
    again[0] = 2;
    pid_t child = fork(); /* it sees what is there, and changes nothing */
    if (!child) {
        check(w, 2);
        _exit(mprotect((void *)w, 4096, PROT_READ | PROT_WRITE) < 0 && errno == EACCES ? 0 : 2);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status)
        printf("the child ended with %#x\n", status), exit(1);
    for (size_t i = 1; i < size / 8; i++)
        w[i] = 3 * i;
    if (msync((void *)w, size, MS_SYNC))
        die("msync");
    for (size_t i = 1; i < size / 8; i++)
        w[i] = 4 * i;
    w[0] = 4;
}

static void *part(int fd, void *at, size_t off, size_t n, int write)
{
    void *p = mmap(at, n, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED | (at ? MAP_FIXED : 0), fd, off);
    if (p == MAP_FAILED)
        die("mmap of a part");
    return p;
}

static void same(const volatile uint64_t *w, size_t page)
{
    if (w[1] != 512 * page + 1)
        printf("page %zu has %lu\n", page, (unsigned long)w[1]), exit(1);
}

/* Other pages of the file, and other memory, come where some of a mapping was. What is written there, and beside it, is kept. */
static void over(const char *path)
{
    enum { PAGE = 4096 };
    int fd = open(path, O_RDWR);
    char *p = part(fd, 0, 0, 16 * PAGE, 1);
    for (int i = 0; i < 16; i++)
        same((void *)(p + i * PAGE), i);
    if (munmap(p + 4 * PAGE, 4 * PAGE))
        die("munmap");
    part(fd, p + 4 * PAGE, 100 * PAGE, 4 * PAGE, 1); /* into the hole */
    part(fd, p + 10 * PAGE, 200 * PAGE, 2 * PAGE, 1); /* over what is there */
    if (mmap(p + 14 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        die("mmap of memory");
    p[14 * PAGE] = 7;
    for (int i = 0; i < 16; i++)
        if (i != 14)
            same((void *)(p + i * PAGE), i / 4 == 1 ? 96 + i : i / 2 == 5 ? 190 + i : i);
    pid_t child = fork();
    if (!child) {
        same((void *)(p + 5 * PAGE), 101);
        same((void *)(p + 15 * PAGE), 15);
        _exit(p[14 * PAGE] != 7);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status)
        printf("the child ended with %#x\n", status), exit(1);
    for (int i = 0; i < 16; i++)
        ((uint64_t *)(p + i * PAGE))[2] = 1000 + i;
    if (msync(p, 16 * PAGE, MS_SYNC))
        die("msync");
    for (int i = 0; i < 16; i++)
        ((uint64_t *)(p + i * PAGE))[2] = 2000 + i; /* the end saves it */
}

/* Threads map pages where others have just had theirs. */
static void *maps(void *path)
{
    int fd = open(path, O_RDONLY);
    for (size_t i = 0; i < 1000; i++) {
        size_t page = i * 7919 % 4096;
        void *p = part(fd, 0, page * 4096, 4096, 0);
        same(p, page);
        munmap(p, 4096);
    }
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, 0, _IONBF, 0);
    alarm(100);
    if (argc < 3)
        return 2;
    if (!strcmp(argv[1], "locked")) { /* all that it gets is locked */
        if (mlockall(MCL_FUTURE))
            die("mlockall");
        check(map(argv[2], 0), 1);
        pid_t child = fork();
        if (!child) {
            check(map(argv[2], 0), 1);
            _exit(0);
        }
        int status = 1;
        return child < 0 || waitpid(child, &status, 0) != child || status ? 1 : (puts("ok"), 0);
    }
    if (!strcmp(argv[1], "reads")) {
        check(map(argv[2], 0), 1);
        pid_t child = fork();
        if (!child) {
            check(map(argv[2], 0), 1);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return printf("the child ended with %#x\n", status), 1;
    } else if (!strcmp(argv[1], "refused"))
        refused(argv[2]);
    else if (!strcmp(argv[1], "writes"))
        writes(argv[2]);
    else if (!strcmp(argv[1], "holds")) { /* is the writer until its input ends */
        volatile uint64_t *w = map(argv[2], 1);
        w[1] = w[1];
        puts("ready");
        return getchar() == EOF ? 0 : 1;
    } else if (!strcmp(argv[1], "second")) {
        int fd = open(argv[2], O_RDWR);
        expect("a second writer", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, EBUSY);
    } else if (!strcmp(argv[1], "follows")) { /* sees what a writer in another process does, in the end */
        volatile uint64_t *w = map(argv[2], 0);
        puts("ready");
        while (w[0] != 4)
            usleep(1000);
        check(w, 4);
    } else if (!strcmp(argv[1], "over"))
        over(argv[2]);
    else if (!strcmp(argv[1], "threads")) {
        pthread_t all[4];
        for (int i = 0; i < 4; i++)
            pthread_create(all + i, 0, maps, argv[2]);
        for (int i = 0; i < 4; i++)
            pthread_join(all[i], 0);
    } else if (!strcmp(argv[1], "lost")) {
        volatile uint64_t *w = map(argv[2], 0), sum = w[1], *own = malloc(8 << 20);
        memset((void *)own, 1, 8 << 20);
        puts("ready");
        getchar();
        for (size_t i = 0; i < 1 << 20; i += 512) /* its own memory is not lost */
            if (own[i] != 0x0101010101010101)
                return 3;
        puts("own");
        for (size_t i = 0; i < size / 8; i += 512)
            sum += w[i];
        return 4;
    } else if (!strcmp(argv[1], "hides")) { /* closes what it does not know, behind the C library's back, and goes on until a signal ends it */
        volatile uint64_t *w = map(argv[2], 0);
        check(w, 1);
        past(SYS_close_range, 3, ~0u, 0);
        alarm(60);
        for (;;)
            check(w, 1);
    } else if (!strcmp(argv[1], "keeps")) { /* the same, and has memory of its own, which it looks at when its input ends: a signal ends it, or all is there */
        const size_t n = 128 << 10;
        volatile uint64_t *w = map(argv[2], 0), *own = malloc(n * 8);
        if (w[1] != 1)
            return 1;
        for (size_t i = 0; i < n; i++)
            own[i] = ~i;
        puts("ready");
        fflush(stdout);
        past(SYS_close_range, 3, ~0u, 0);
        alarm(60);
        getchar();
        for (size_t i = 0; i < n; i++)
            if (own[i] != ~i)
                printf("word %zu is %lu\n", i, (unsigned long)own[i]), exit(1);
    } else
        return 2;
    puts("ok");
    return 0;
}
