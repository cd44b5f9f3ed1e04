/* The floor of the page cache's benchmark: a program that faults, and another one on its processor that answers with bare system calls: poll, read,
 * UFFDIO_COPY. It has nothing to decide, and one buffer in place of a store. It keeps a quarter of the pages local, as the benchmark does: what leaves is protected,
 * read and punched, for many answers at a time, so that the median of their times has none of it; in a row it is punched only.
 *
 * It reads JSON strings, a line each: "pages N" and "runs N" answer with the nanoseconds of N faults that bring one page, or sixteen; "row N" with those of N passes over
 * all, in runs of 64 pages. All three begin with a full cache. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES (64ul << 20 >> 12)
#define LOCAL (PAGES / 4)
#define LEAVE 128ul /* pages that leave together */
#define MOST 64ul   /* pages of a run */

struct shared {
    uint64_t base;
    uint8_t local[PAGES];
};

static volatile struct shared *shared;
static int window;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* The side that answers. */

static char buffer[LEAVE * PAGE] __attribute__((aligned(4096)));
static uint32_t queue[PAGES]; /* first pages of the runs that are local */
static uint64_t run, head, tail;
static int faults, clean;

static void leave(uint64_t pages)
{
    for (; pages > 0 && head != tail; pages -= run) {
        uint64_t at = queue[head++ % PAGES] * PAGE, size = run * PAGE;
        struct uffdio_writeprotect w = {{shared->base + at, size}, UFFDIO_WRITEPROTECT_MODE_WP};
        if (!clean && (ioctl(faults, UFFDIO_WRITEPROTECT, &w) || pread(window, buffer, size, at) != (ssize_t)size))
            fail("save");
        if (fallocate(window, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, size))
            fail("punch");
        memset((void *)(shared->local + at / PAGE), 0, run);
    }
}

static void answer(void)
{
    struct uffd_msg m[16];
    ssize_t n = read(faults, m, sizeof m);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        fail("read a fault");
    for (size_t i = 0; i < n / sizeof *m; i++) {
        uint64_t page = (m[i].arg.pagefault.address - shared->base) / PAGE & -run;
        struct uffdio_copy c = {shared->base + page * PAGE, (uintptr_t)buffer, run * PAGE, clean ? UFFDIO_COPY_MODE_WP : 0, 0};
        memset((void *)(shared->local + page), 1, run);
        if (ioctl(faults, UFFDIO_COPY, &c))
            fail("UFFDIO_COPY");
        queue[tail++ % PAGES] = page;
        if ((tail - head) * run > LOCAL)
            leave(LEAVE);
    }
}

static int serve(int sock)
{
    struct pollfd p[2] = {{.fd = faults, .events = POLLIN}, {.fd = sock, .events = POLLIN}};
    uint64_t ask;
    memset(buffer, 1, sizeof buffer);
    for (run = 1;;) {
        if (poll(p, 2, -1) < 0)
            fail("poll");
        if (p[0].revents)
            answer();
        if (p[1].revents) {
            if (read(sock, &ask, sizeof ask) != sizeof ask)
                return 0;
            leave(PAGES);
            run = ask & 255, clean = ask >> 8;
            if (write(sock, &ask, sizeof ask) != sizeof ask)
                return 0;
        }
    }
}

/* The side that faults. */

static char *mem;
static int server;
static uint64_t seed = 88172645463325252ul;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % below;
}

static void begin(uint64_t pages, uint64_t unchanged)
{
    uint64_t ask = pages | unchanged << 8;
    if (write(server, &ask, sizeof ask) != sizeof ask || read(server, &ask, sizeof ask) != sizeof ask)
        fail("ask the side that answers");
    for (uint64_t p = PAGES - LOCAL; p < PAGES; p += pages) /* the end: a pass over all then misses from its first page on */
        if (*(volatile char *)(mem + p * PAGE) && !unchanged)
            mem[p * PAGE] = 1;
}

static void misses(uint64_t pages, long n)
{
    begin(pages, 0);
    printf("{\"Ns\":[");
    for (long i = 0; i < n; i++) {
        uint64_t p;
        do
            p = draw(PAGES) & -pages;
        while (shared->local[p]);
        double t = now();
        mem[p * PAGE] = i;
        printf("%s%.0f", i ? "," : "", now() - t);
    }
    printf("]}\n");
}

static void row(long passes)
{
    begin(MOST, 1);
    double t = now();
    uint64_t sum = 0;
    for (long i = 0; i < passes; i++)
        for (uint64_t at = 0; at < PAGES * PAGE; at += 64)
            sum += *(volatile uint64_t *)(mem + at);
    t = now() - t;
    printf("{\"Ns\":%.0f}\n", sum ? t : 0);
}

static int watch(void)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device < 0 || (fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK)) < 0)
            fail("userfaultfd");
    }
    struct uffdio_api a = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
    struct uffdio_register r = {.range = {(uintptr_t)mem, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP};
    if (ioctl(fd, UFFDIO_API, &a) || ioctl(fd, UFFDIO_REGISTER, &r))
        fail("userfaultfd");
    return fd;
}

static void pass(int sock, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(sock, &h, 0) != 1)
        fail("pass the descriptor");
}

static int take(int sock)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&byte, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd;
    if (recvmsg(sock, &h, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&h))
        exit(1); /* the other side says why */
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof fd);
    return fd;
}

int main(void)
{
    int ends[2];
    long n;
    char what[16];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one); /* where that is forbidden, they are as the kernel puts them */
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    window = memfd_create("fault-floor", MFD_CLOEXEC);
    if (shared == MAP_FAILED || window < 0 || ftruncate(window, PAGES * PAGE) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        fail("prepare");
    pid_t other = fork();
    if (other < 0)
        fail("fork");
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        faults = take(ends[1]);
        return serve(ends[1]);
    }
    close(ends[1]);
    server = ends[0];
    mem = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, window, 0);
    if (mem == MAP_FAILED)
        fail("mmap");
    shared->base = (uintptr_t)mem;
    int fd = watch();
    pass(server, fd);
    close(fd); /* the other side's end lets a fault go on, as zeros, and the next line fails */
    while (scanf(" \"%15[a-z] %ld\"", what, &n) == 2) {
        if (!strcmp(what, "row"))
            row(n);
        else
            misses(strcmp(what, "runs") ? 1 : 16, n);
        fflush(stdout);
    }
    return 0;
}
