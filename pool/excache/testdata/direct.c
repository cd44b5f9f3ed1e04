// A program that has a file opened with O_DIRECT by the way that argv[1] names, and reads it into remote memory while threads need that too. argv[2] is a folder
// with the file. It prints "ok", or what is wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(c) do { if (!(c)) { printf("line %d: %s is false (errno %d)\n", __LINE__, #c, errno); exit(1); } } while (0)
#define MIB (1ul << 20)
#define SIZE (16 * MIB)
#define PIECE (4 * MIB)

static const char *self, *folder;
static char *file, *template, *template_dat;

static int by_openat(void) { return syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_DIRECT); }

static int by_openat2(void)
{
    struct { uint64_t flags, mode, resolve; } how = {O_RDONLY | O_DIRECT, 0, 0};
    int fd = syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof how);
    CHECK(how.flags & O_DIRECT); // it is the program's
    return fd;
}

static int by_open(void)
{
#ifdef SYS_open
    return syscall(SYS_open, file, O_RDONLY | O_DIRECT);
#else
    return by_openat();
#endif
}

static int by_handle(void)
{
    union { struct file_handle h; char room[sizeof(struct file_handle) + MAX_HANDLE_SZ]; } handle = {.h = {.handle_bytes = MAX_HANDLE_SZ}};
    int id, at = open(folder, O_RDONLY), fd = -1;
    if (name_to_handle_at(AT_FDCWD, file, &handle.h, &id, 0) == 0)
        fd = open_by_handle_at(at, &handle.h, O_RDONLY | O_DIRECT);
    return fd < 0 ? by_openat() : fd; // which only root may
}

// The C library's functions have a second name each.
extern int __open64(const char *, int, ...), __open(const char *, int, ...), __fcntl(int, int, ...);
static int by_alias(void)
{
    int fd = __open64(file, O_RDONLY | O_DIRECT);
    CHECK(fd >= 0 && !(fcntl(fd, F_GETFL) & O_DIRECT) && close(fd) == 0);
    return __open(file, O_RDONLY | O_DIRECT);
}
static int by_fcntl_alias(void)
{
    int fd = open(file, O_RDONLY);
    CHECK(__fcntl(fd, F_SETFL, O_DIRECT) == 0);
    return fd;
}

static int by_fcntl(void)
{
    int fd = open(file, O_RDONLY);
    CHECK(syscall(SYS_fcntl, fd, F_SETFL, O_DIRECT) == 0);
    return fd;
}

static int by_pidfd(void) // stdin has the flag when the program starts
{
    int of = syscall(SYS_pidfd_open, getppid(), 0), fd = of < 0 ? -1 : syscall(SYS_pidfd_getfd, of, atoi(getenv("THEIRS")), 0);
    return fd < 0 ? by_openat() : fd; // not every sandbox allows it
}

static int by_inheriting(void) { return 0; }

static int receives(int many) // descriptor 3 is a socket that one comes over
{
    union { struct cmsghdr head; char room[CMSG_SPACE(2 * sizeof(int))]; } c;
    char byte;
    struct iovec v = {&byte, 1};
    struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c}}};
    CHECK(many ? recvmmsg(3, m, 1, 0, 0) == 1 : recvmsg(3, &m[0].msg_hdr, 0) == 1);
    CHECK(m[0].msg_hdr.msg_controllen >= CMSG_LEN(2 * sizeof(int)) && c.head.cmsg_type == SCM_RIGHTS);
    return ((int *)CMSG_DATA(&c.head))[1];
}
static int by_message(void) { return receives(0); }
static int by_messages(void) { return receives(1); }

static int by_spawning(void) // a child that has it from the start
{
    posix_spawn_file_actions_t actions;
    char *args[] = {(char *)self, "inherits", (char *)folder, 0};
    extern char **environ;
    pid_t pid;
    int status = 0;
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_addopen(&actions, 0, file, O_RDONLY | O_DIRECT, 0) == 0);
    CHECK(posix_spawn(&pid, self, &actions, 0, args, environ) == 0 && waitpid(pid, &status, 0) == pid);
    exit(status != 0);
}

// A temporary file gets the file's bytes: mkostemp and its relatives open their own.
static int filled(int fd)
{
    char *b = malloc(PIECE);
    int from = open(file, O_RDONLY);
    for (size_t at = 0; at < SIZE; at += PIECE)
        CHECK(pread(from, b, PIECE, at) == PIECE && pwrite(fd, b, PIECE, at) == PIECE);
    free(b);
    close(from);
    return fd;
}
static int by_mkostemp(void) { return filled(mkostemp(template, O_DIRECT)); }
static int by_mkostemp64(void) { return filled(mkostemp64(template, O_DIRECT)); }
static int by_mkostemps(void) { return filled(mkostemps(template_dat, 4, O_DIRECT)); }
static int by_mkostemps64(void) { return filled(mkostemps64(template_dat, 4, O_DIRECT)); }

static int over;
static void *needs(void *none) // memory, so that pages leave
{
    volatile unsigned char *q = mmap(0, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        for (size_t i = 0; i < 8 * MIB; i += 4096)
            q[i]++;
    return none;
}

static void reads(int fd)
{
    pthread_t t;
    uint64_t *p = malloc(SIZE);
    size_t bad = 0;
    pthread_create(&t, 0, needs, 0);
    for (int round = 0; round < 2; round++) {
        memset(p, 0xee, SIZE);
        for (size_t at = 0; at < SIZE; at += PIECE)
            CHECK(pread(fd, (char *)p + at, PIECE, at) == PIECE);
        for (size_t i = 0; i < SIZE / 8; i++)
            bad += p[i] != i * 2654435761ul;
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(t, 0);
    if (bad)
        printf("%zu words are wrong\n", bad), exit(1);
}

// The flag makes a pipe one of packets: that stays, for its bytes are copied.
static void packets(void)
{
    int p[2];
    CHECK(fcntl(3, F_GETFL) & O_DIRECT); // as it was inherited
    CHECK(pipe2(p, O_DIRECT) == 0 && fcntl(p[1], F_SETFL, fcntl(p[1], F_GETFL) | O_NONBLOCK) == 0);
    CHECK(fcntl(p[1], F_GETFL) & O_DIRECT && syscall(SYS_fcntl, p[1], F_SETFL, O_DIRECT | O_WRONLY) == 0 && fcntl(p[1], F_GETFL) & O_DIRECT);
    char b[8];
    CHECK(write(p[1], "ab", 2) == 2 && write(p[1], "cd", 2) == 2 && read(p[0], b, 8) == 2);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int (*open)(void); } all[] = {{"open", by_open}, {"openat", by_openat}, {"openat2", by_openat2}, {"handle", by_handle},
        {"alias", by_alias}, {"fcntl", by_fcntl}, {"fcntlalias", by_fcntl_alias}, {"pidfd", by_pidfd}, {"inherits", by_inheriting}, {"message", by_message}, {"messages", by_messages}, {"spawns", by_spawning},
        {"mkostemp", by_mkostemp}, {"mkostemp64", by_mkostemp64}, {"mkostemps", by_mkostemps}, {"mkostemps64", by_mkostemps64}};
    CHECK(argc == 3);
    self = argv[0], folder = argv[2];
    CHECK(asprintf(&file, "%s/file", folder) > 0 && asprintf(&template, "%s/tXXXXXX", folder) > 0 && asprintf(&template_dat, "%s.dat", template) > 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[1], all[i].name)) {
            int fd = all[i].open();
            CHECK(fd >= 0);
            int flags = fcntl(fd, F_GETFL);
            reads(fd);
            CHECK(!(flags & O_DIRECT));
            printf("ok\n");
            return 0;
        }
    packets();
    printf("ok\n");
    return 0;
}
