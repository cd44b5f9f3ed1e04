/* Descriptors with O_DIRECT, which a program comes by in many ways: it opens files, is started with them, gets them from others. What is of no device keeps the
 * flag: it makes a pipe one of packets, whose bytes are copied. */
#include "window.h"

static int pipe_at(int fd) { return CALL2(SYS_fcntl, fd, F_GETPIPE_SZ) >= 0; }

int direct_open(int flags)
{
    if (window_on && flags & O_DIRECT) {
        count(&counters->direct, 1);
        flags &= ~O_DIRECT;
    }
    return flags;
}

u64 direct_set(int fd, u64 flags) { return flags & O_DIRECT && !pipe_at(fd) ? (u64)direct_open((int)flags) : flags; }

void direct_off(int fd)
{
    i64 flags = window_on ? CALL2(SYS_fcntl, fd, F_GETFL) : -1;
    if (flags >= 0 && flags & O_DIRECT && !pipe_at(fd) && CALL3(SYS_fcntl, fd, F_SETFL, flags & ~O_DIRECT) >= 0)
        count(&counters->direct, 1);
}

void direct_received(const struct msghdr *m)
{
    struct { u64 len; int level, type, fds[]; } *c;
    for (u64 at = 0; window_on && m->control && at + sizeof *c <= m->controllen; at += (c->len + 7) & ~7ul) {
        c = (void *)((u8 *)m->control + at);
        if (c->len < sizeof *c || c->len > m->controllen - at)
            return;
        if (c->level == SOL_SOCKET && c->type == SCM_RIGHTS)
            for (u64 i = 0; i < (c->len - sizeof *c) / sizeof *c->fds; i++)
                direct_off(c->fds[i]);
    }
}

void direct_inherited(void)
{
    u64 list[512];
    i64 fd = CALL4(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_CLOEXEC, 0), n;
    while (fd >= 0 && (n = CALL3(SYS_getdents64, fd, list, sizeof list)) > 0) {
        struct entry { u64 inode, next; unsigned short len; u8 type; char name[]; } *e;
        for (i64 at = 0; at < n; at += e->len) {
            int number = 0;
            e = (void *)((u8 *)list + at);
            for (const char *p = e->name; *p >= '0' && *p <= '9'; p++)
                number = number * 10 + (*p - '0');
            if (e->name[0] != '.')
                direct_off(number);
        }
    }
    if (fd >= 0)
        CALL1(SYS_close, fd);
}

void direct_called(i64 n, const i64 a[6], i64 result)
{
    if (result < 0)
        return;
    switch (n) {
#ifdef __x86_64__
    case SYS_open:
#endif
    case SYS_openat:
    case SYS_openat2: /* whose flags are memory of the program's that may not be there */
    case SYS_open_by_handle_at:
    case SYS_pidfd_getfd:
        direct_off((int)result);
        return;
    case SYS_recvmsg:
        direct_received((const struct msghdr *)a[1]);
        return;
    case SYS_recvmmsg:
        for (i64 i = 0; i < result; i++)
            direct_received(&((const struct mmsghdr *)a[1])[i].head);
    }
}
