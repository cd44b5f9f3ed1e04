#include "window.h"

/* Where programs find shares; a real folder of that name is seen where the daemon has no share of a file's. */
static const char folder[] = "/wherry/";
enum { MAX_SHARES = 64 }; /* as maxViews */

/* A mapping of a share: size bytes at addr, of the file from off on. */
static struct shared { u64 device, inode, addr, size, off, write; } shared[MAX_SHARES];
static u32 shared_count;

i64 share_open(const char *path, int flags)
{
    u64 n = 0, list[2 * MAX_PAIRS] = {0};
    char *name = (char *)list;
    if (!window_on || !path)
        return -ENOENT;
    for (u64 i = 0; i < sizeof folder - 1; i++)
        if (path[i] != folder[i])
            return -ENOENT;
    for (path += sizeof folder - 1; path[n]; n++) {
        if (n == sizeof list - 1)
            return -ENOENT;
        name[n] = path[n];
    }
    struct reply r;
    lock();
    u64 err = ask(CALL_OPEN, (n + 15) / 16, n, list, &r);
    unlock();
    if (err)
        return -(i64)err;
    if (!(flags & O_CLOEXEC) && CALL3(SYS_fcntl, r.fd, F_SETFD, 0) < 0)
        return -EBADF;
    return r.fd;
}

/* Maps a share where its addresses are reserved. The lock is held. */
static i64 show(const struct shared *v)
{
    struct reply r;
    u64 err = ask(CALL_VIEW, 3, 0, &v->device, &r);
    if (err)
        return -(i64)err;
    i64 at = CALL6(SYS_mmap, v->addr, v->size, 0, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, r.fd, v->off);
    CALL1(SYS_close, r.fd);
    i64 watched = at < 0 && at > -4096 ? at : watch_part(v->addr, v->size);
    if (watched >= 0)
        watched = CALL3(SYS_mprotect, v->addr, v->size, v->write ? PROT_READ | PROT_WRITE : PROT_READ);
    if (watched < 0)
        ask(CALL_UNVIEW, 1, 0, &v->addr, 0);
    return watched;
}

/* Whether there is room for what is left of shares when n bytes at p are taken out of them. The lock is held. */
static int cuttable(u64 from, u64 to)
{
    u32 more = 0;
    for (u32 i = 0; i < shared_count; i++)
        more += shared[i].addr < from && to < shared[i].addr + shared[i].size;
    return shared_count + more <= MAX_SHARES;
}

/* Forgets what was at addresses that are something else's now, or nobody's. What is left on both sides stays mapped. The lock is held, since before they were: no
 * other thread maps a share there meanwhile. */
static void cut(u64 from, u64 to)
{
    u64 pair[2] = {from, to - from};
    u32 found = 0;
    for (u32 i = 0; i < shared_count;) {
        struct shared *v = shared + i, tail = *v;
        u64 end = v->addr + v->size;
        if (v->addr >= to || end <= from) {
            i++;
            continue;
        }
        found++;
        tail.off += to - v->addr;
        tail.addr = to;
        tail.size = end - to;
        if (v->addr < from) {
            v->size = from - v->addr;
            if (end > to && shared_count < MAX_SHARES)
                shared[shared_count++] = tail;
        } else
            *v = end > to ? tail : shared[--shared_count];
    }
    if (found)
        ask(CALL_UNVIEW, 1, 0, pair, 0);
}

i64 share_map(void *p, u64 n, int prot, int flags, int fd, i64 off)
{
    u64 stat[32]; /* a struct stat begins with the device and the file's number */
    if (!window_on || CALL2(SYS_fstat, fd, stat) < 0)
        return -EBADF;
    if (!(prot & PROT_READ) || prot & PROT_EXEC || (prot & PROT_WRITE && flags & MAP_PRIVATE))
        return -EACCES;
    n = whole_pages(n);
    lock();
    i64 at = cuttable((u64)p, (u64)p + n)
                 ? CALL6(SYS_mmap, p, n, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)), -1, 0)
                 : -ENOMEM;
    if (at < 0 && at > -4096) {
        unlock();
        return at;
    }
    cut((u64)at, (u64)at + n);
    struct shared v = {stat[0], stat[1], (u64)at, n, (u64)off, (prot & PROT_WRITE) != 0};
    i64 err = shared_count < MAX_SHARES ? show(&v) : -ENOMEM;
    if (err >= 0)
        shared[shared_count++] = v;
    else
        CALL2(SYS_munmap, at, n);
    unlock();
    return err < 0 ? err : at;
}

i64 share_unmap(void *p, u64 n)
{
    u64 from = (u64)p, to = from + whole_pages(n);
    if (!__atomic_load_n(&shared_count, __ATOMIC_RELAXED))
        return CALL2(SYS_munmap, p, n);
    lock();
    i64 r = cuttable(from, to) ? CALL2(SYS_munmap, p, n) : -ENOMEM;
    if (!r)
        cut(from, to);
    unlock();
    return r;
}

i64 share_over(void *p, u64 n, int prot, int flags, int fd, i64 off)
{
    u64 from = (u64)p, to = from + whole_pages(n);
    lock();
    i64 r = cuttable(from, to) ? CALL6(SYS_mmap, p, n, prot, flags, fd, off) : -ENOMEM;
    if (r == (i64)p)
        cut(from, to);
    unlock();
    return r;
}

int share_at(const void *p, u64 n)
{
    u64 from = (u64)p, to = from + n;
    int found = 0;
    if (!__atomic_load_n(&shared_count, __ATOMIC_RELAXED))
        return 0;
    lock();
    for (u32 i = 0; i < shared_count; i++)
        if (shared[i].addr < to && from < shared[i].addr + shared[i].size)
            found |= shared[i].write ? SHARE_WRITE : SHARE_READ;
    unlock();
    return found;
}

i64 share_sync(const void *p, u64 n)
{
    u64 pair[2] = {(u64)p, n};
    lock();
    u64 err = ask(CALL_SYNC, 1, 0, pair, 0);
    unlock();
    return -(i64)err;
}

void share_forked(void)
{
    for (u32 i = 0; i < shared_count; i++) {
        struct shared *v = shared + i;
        i64 at = CALL6(SYS_mmap, v->addr, v->size, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        v->write = 0; /* the parent is the writer */
        if ((at < 0 && at > -4096) || show(v) < 0)
            fail("a share cannot be mapped in a forked process\n");
    }
}
