/* What the program calls instead of the C library: allocations of window_least bytes and more come from the window, all else
 * goes on to whoever would have had it. */
#include "window.h"

typedef __builtin_va_list va_list;
#define va_start __builtin_va_start
#define va_arg __builtin_va_arg
#define va_end __builtin_va_end

extern int *__errno_location(void) __attribute__((weak));
extern void *dlsym(void *, const char *) __attribute__((weak));
extern void *__libc_malloc(u64) __attribute__((weak));
#define NEXT ((void *)-1l) /* RTLD_NEXT */
#define FAILED ((void *)-1l)

static i64 fails(i64 r) /* a system call's result as the C library gives it */
{
    if (r < 0 && r > -4096) {
        if (__errno_location)
            *__errno_location() = (int)-r;
        return -1;
    }
    return r;
}

/* The next one of each function. dlsym may itself allocate: it gets a little from here, and gives it back to nobody. */
static u8 early[8192] __attribute__((aligned(16)));
static u64 early_used;
static int resolving;

static void *early_take(u64 n)
{
    u64 at = __atomic_fetch_add(&early_used, (n + 15) & ~15ul, __ATOMIC_RELAXED);
    return at + n <= sizeof early ? early + at : 0;
}

static int is_early(const void *p) { return (const u8 *)p >= early && (const u8 *)p < early + sizeof early; }

static void *next(const char *name, void **slot)
{
    void *f = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (f || !dlsym)
        return f;
    __atomic_fetch_add(&resolving, 1, __ATOMIC_RELAXED);
    f = dlsym(NEXT, name);
    __atomic_fetch_add(&resolving, -1, __ATOMIC_RELAXED);
    __atomic_store_n(slot, f, __ATOMIC_RELAXED);
    return f;
}

/* The two that dlsym itself may call. start finds both before there are threads: from then on the little is nobody's. */
static void *malloc_next, *calloc_next;
static void *next_or_early(const char *name, void **slot)
{
    void *f = __atomic_load_n(slot, __ATOMIC_RELAXED);
    return f || __atomic_load_n(&resolving, __ATOMIC_RELAXED) ? f : next(name, slot);
}

#define NEXT_OF(type, name) static void *name##_slot; __typeof__(type) name##_next = (__typeof__(type))next(#name, &name##_slot)

static u8 *take(u64 n, u64 align, int how)
{
    lock();
    u8 *p = window_take(whole_pages(n), align, how);
    unlock();
    if (!p)
        fails(-ENOMEM);
    return p;
}

/* The bytes of an allocation of the window's. What is no multiple of a page is never one: another malloc's in the window, mostly. */
static u64 length(void *p)
{
    if (!in_window(p) || (u64)p % PAGE)
        return 0;
    lock();
    u64 n = window_length(p);
    unlock();
    return n;
}

static int large(u64 n) { return window_on && n >= window_least; }

EXPORT void *malloc(u64 n)
{
    if (large(n))
        return n > window_size ? (void *)(fails(-ENOMEM) + 1) : take(n, PAGE, OBJECT);
    void *(*next_malloc)(u64) = (void *(*)(u64))next_or_early("malloc", &malloc_next);
    return next_malloc ? next_malloc(n) : early_take(n);
}

static int give(void *p) /* an allocation of the window's; 0: it is none */
{
    if (!in_window(p) || (u64)p % PAGE)
        return 0;
    lock();
    u64 n = window_length(p);
    if (n)
        window_give(p, n);
    unlock();
    return n != 0;
}

EXPORT void free(void *p)
{
    if (give(p))
        return;
    if (is_early(p))
        return;
    NEXT_OF(void (*)(void *), free);
    if (free_next)
        free_next(p);
}

/* How jemalloc's and tcmalloc's C++ operators free what their aligned ones have from aligned_alloc, which may be the window's. */
EXPORT void sdallocx(void *p, u64 n, int flags)
{
    NEXT_OF(void (*)(void *, u64, int), sdallocx);
    if (give(p))
        return;
    if (sdallocx_next)
        sdallocx_next(p, n, flags);
    else
        free(p);
}

EXPORT void dallocx(void *p, int flags)
{
    NEXT_OF(void (*)(void *, int), dallocx);
    if (give(p))
        return;
    if (dallocx_next)
        dallocx_next(p, flags);
    else
        free(p);
}

EXPORT void *calloc(u64 a, u64 b)
{
    u64 n;
    if (__builtin_mul_overflow(a, b, &n)) {
        fails(-ENOMEM);
        return 0;
    }
    if (large(n))
        return n > window_size ? (void *)(fails(-ENOMEM) + 1) : take(n, PAGE, OBJECT | CLEARED);
    void *(*next_calloc)(u64, u64) = (void *(*)(u64, u64))next_or_early("calloc", &calloc_next);
    return next_calloc ? next_calloc(a, b) : early_take(n); /* zeros since the program started */
}

EXPORT u64 malloc_usable_size(void *p)
{
    u64 n = length(p);
    if (n || is_early(p))
        return n;
    NEXT_OF(u64 (*)(void *), malloc_usable_size);
    return malloc_usable_size_next && p ? malloc_usable_size_next(p) : 0;
}

EXPORT u64 sallocx(void *p, int flags)
{
    u64 n = length(p);
    NEXT_OF(u64 (*)(void *, int), sallocx);
    return n ? n : sallocx_next ? sallocx_next(p, flags) : malloc_usable_size(p);
}

/* Grows or shrinks an allocation of the window where it is; 0 if it must move. */
static int resize(u8 *p, u64 old, u64 n)
{
    if (n < old)
        window_give(p + n, old - n);
    return n <= old || window_extend(p, old, n - old);
}

EXPORT void *realloc(void *p, u64 n)
{
    if (!p)
        return malloc(n);
    int inside = length(p) != 0;
    if (!inside && !large(n) && !is_early(p)) {
        NEXT_OF(void *(*)(void *, u64), realloc);
        return realloc_next ? realloc_next(p, n) : 0;
    }
    if (!n) {
        free(p);
        return 0;
    }
    u64 old = malloc_usable_size(p);
    if (inside && large(n) && n <= window_size) {
        lock();
        int done = resize(p, old, whole_pages(n));
        unlock();
        if (done)
            return p;
    }
    void *q = malloc(n);
    if (q) {
        u64 most = is_early(p) ? (u64)(early + sizeof early - (u8 *)p) : old;
        __builtin_memcpy(q, p, most < n ? most : n);
        free(p);
    }
    return q;
}

EXPORT void *reallocarray(void *p, u64 a, u64 b)
{
    u64 n;
    if (__builtin_mul_overflow(a, b, &n)) {
        fails(-ENOMEM);
        return 0;
    }
    return realloc(p, n);
}

EXPORT void *memalign(u64 align, u64 n)
{
    if (large(n) && align && !(align & (align - 1)))
        return n > window_size ? (void *)(fails(-ENOMEM) + 1) : take(n, align < PAGE ? PAGE : align, OBJECT);
    NEXT_OF(void *(*)(u64, u64), memalign);
    return memalign_next ? memalign_next(align, n) : 0;
}

EXPORT void *aligned_alloc(u64 align, u64 n) { return memalign(align, n); }
EXPORT void *valloc(u64 n) { return memalign(PAGE, n); }
EXPORT void *pvalloc(u64 n) { return memalign(PAGE, whole_pages(n)); }

EXPORT int posix_memalign(void **out, u64 align, u64 n)
{
    if (align < sizeof(void *) || align & (align - 1))
        return EINVAL;
    void *p = memalign(align, n ? n : 1);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

/* How many bytes of an area, whole pages, lie before the window, in it and after it. */
struct parts { u64 before, in, after; };
static struct parts parts_of(const void *p, u64 n)
{
    u64 a = (u64)p, end = a + n, low = (u64)window_base, high = low + window_size;
    if (!window_on || end <= low || a >= high || end < a)
        return (struct parts){n, 0, 0};
    struct parts s = {a < low ? low - a : 0, 0, end > high ? end - high : 0};
    s.in = n - s.before - s.after;
    return s;
}

static i64 system_map(void *p, u64 n, int prot, int flags, int fd, i64 off)
{
    if (window_on && fd == -1 && flags & MAP_ANONYMOUS && n >= window_least && prot != 0) {
        count(&counters->mappings, 1);
        count(&counters->bytes, n);
    }
    return CALL6(SYS_mmap, p, n, prot, flags, fd, off);
}

static int failed(i64 r) { return r < 0 && r > -4096; }

/* A part of the window is replaced; the lock is held. Nothing changes where the system refuses. Anonymous memory stays in the window, and is
 * zeroed; a file is mapped there, and the addresses are the window's again when they are given up. */
static i64 replace(u8 *in, u64 n, int prot, int flags, int fd, i64 off)
{
    const int writable = PROT_READ | PROT_WRITE;
    i64 r = 0;
    if (!(flags & MAP_ANONYMOUS && flags & MAP_PRIVATE) || prot & PROT_EXEC) {
        r = CALL6(SYS_mmap, in, n, prot, flags, fd, off);
        if (!failed(r))
            window_claim(in, n, 1);
        return r;
    }
    if (prot != writable)
        r = CALL3(SYS_mprotect, in, n, prot);
    if (failed(r))
        return r;
    window_claim(in, n, 0);
    if (prot != writable) { /* again: giving up what was there may have mended it */
        r = CALL3(SYS_mprotect, in, n, prot);
        window_altered(in, n);
    }
    return r;
}

/* Something is put over addresses, some of the window among them. */
static i64 map_over(u8 *p, u64 n, int prot, int flags, int fd, i64 off)
{
    n = whole_pages(n);
    struct parts s = parts_of(p, n);
    if ((u64)p % PAGE)
        return -EINVAL;
    lock();
    i64 r = window_prepare(p + s.before, s.in) ? 0 : -ENOMEM;
    if (!failed(r) && s.before)
        r = system_map(p, s.before, prot, flags, fd, off);
    if (!failed(r) && s.after)
        r = system_map(p + n - s.after, s.after, prot, flags, fd, off + (i64)(n - s.after));
    if (!failed(r))
        r = replace(p + s.before, s.in, prot, flags, fd, off + (i64)s.before);
    unlock();
    return failed(r) ? r : (i64)p;
}

EXPORT void *mmap(void *p, u64 n, int prot, int flags, int fd, i64 off)
{
    const int odd = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB | MAP_32BIT;
    if (flags & MAP_FIXED && !(flags & MAP_FIXED_NOREPLACE) && parts_of(p, whole_pages(n)).in)
        return (void *)fails(map_over(p, n, prot, flags, fd, off));
    if (large(n) && fd == -1 && flags & MAP_ANONYMOUS && flags & MAP_PRIVATE && !(flags & odd) && prot == (PROT_READ | PROT_WRITE)) {
        u8 *q = n > window_size ? 0 : take(n, PAGE, CLEARED);
        return q ? q : (void *)fails(-ENOMEM);
    }
    int over = flags & MAP_FIXED && !(flags & MAP_FIXED_NOREPLACE) && share_at(p, whole_pages(n));
    i64 r = over ? share_over(p, n, prot, flags, fd, off) : system_map(p, n, prot, flags, fd, off);
    return (void *)fails(r == -EBADF && fd >= 0 ? share_map(p, n, prot, flags, fd, off) : r);
}

EXPORT void *mmap64(void *p, u64 n, int prot, int flags, int fd, i64 off) { return mmap(p, n, prot, flags, fd, off); }

EXPORT int munmap(void *p, u64 n)
{
    struct parts s = parts_of(p, whole_pages(n));
    if (!s.in || (u64)p % PAGE)
        return (int)fails(share_unmap(p, n));
    u8 *in = (u8 *)p + s.before;
    i64 r = s.before ? share_unmap(p, s.before) : 0;
    if (r >= 0 && s.after)
        r = share_unmap(in + s.in, s.after);
    lock();
    window_give(in, s.in);
    unlock();
    return (int)fails(r);
}

static i64 remap(u8 *p, u64 old, u64 n, int flags, void *to)
{
    if ((u64)p % PAGE || !old || !n || flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED) || flags == MREMAP_FIXED ||
        (flags & MREMAP_FIXED && (u8 *)to < p + old && p < (u8 *)to + n))
        return -EINVAL;
    if (!(flags & MREMAP_FIXED)) {
        lock();
        int done = resize(p, old, n);
        unlock();
        if (done)
            return (i64)p;
        if (!(flags & MREMAP_MAYMOVE))
            return -ENOMEM;
    }
    u8 *q = flags & MREMAP_FIXED ? mmap(to, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) : take(n, PAGE, CLEARED);
    if (!q || q == FAILED)
        return -ENOMEM;
    __builtin_memcpy(q, p, old < n ? old : n);
    lock();
    window_give(p, old);
    unlock();
    return (i64)q;
}

/* A mapping of the system's is moved over addresses of the window. */
static i64 remap_over(void *p, u64 old, u64 n, int flags, u8 *to)
{
    struct parts s = parts_of(to, n);
    if ((u64)to % PAGE)
        return -EINVAL;
    lock();
    i64 r = -ENOMEM;
    if (window_prepare(to + s.before, s.in)) {
        r = CALL5(SYS_mremap, p, old, n, flags, to);
        if (!failed(r))
            window_claim(to + s.before, s.in, 1);
    }
    unlock();
    return r;
}

EXPORT void *mremap(void *p, u64 old, u64 n, int flags, ...)
{
    void *to = 0;
    if (flags & MREMAP_FIXED) {
        va_list v;
        va_start(v, flags);
        to = va_arg(v, void *);
        va_end(v);
    }
    if (in_window(p))
        return (void *)fails(remap(p, whole_pages(old), whole_pages(n), flags, to));
    if (flags & MREMAP_FIXED && parts_of(to, whole_pages(n)).in)
        return (void *)fails(remap_over(p, old, whole_pages(n), flags, to));
    if (share_at(p, old) || (flags & MREMAP_FIXED && share_at(to, n)))
        return (void *)fails(-EINVAL); /* the daemon would not know where it is */
    return (void *)fails(CALL5(SYS_mremap, p, old, n, flags, to));
}

static i64 protect(void *p, u64 n, int prot, int key)
{
    struct parts s = parts_of(p, whole_pages(n));
    if (prot & PROT_WRITE && share_at(p, n) & SHARE_READ)
        return -EACCES;
    i64 r = key == -1 ? CALL3(SYS_mprotect, p, n, prot) : CALL4(SYS_pkey_mprotect, p, n, prot, key);
    if (r == 0 && s.in && (prot != (PROT_READ | PROT_WRITE) || key != -1)) {
        lock();
        window_altered((u8 *)p + s.before, s.in);
        unlock();
    }
    return r;
}

EXPORT int mprotect(void *p, u64 n, int prot) { return (int)fails(protect(p, n, prot, -1)); }
EXPORT int pkey_mprotect(void *p, u64 n, int prot, int key) { return (int)fails(protect(p, n, prot, key)); }

/* Advice that the window follows, or that is about no more than speed, who inherits memory, and dumps of it. */
static int takes(int advice)
{
    return (advice >= 0 && advice <= MADV_DONTNEED) || advice == MADV_FREE || (advice >= MADV_DONTFORK && advice < MADV_WIPEONFORK) ||
           (advice > MADV_WIPEONFORK && advice <= MADV_DONTNEED_LOCKED);
}

EXPORT int madvise(void *p, u64 n, int advice)
{
    struct parts s = parts_of(p, whole_pages(n));
    if (!s.in)
        return (int)fails(advice == MADV_REMOVE && share_at(p, n) ? -EINVAL : CALL3(SYS_madvise, p, n, advice));
    if ((u64)p % PAGE || !takes(advice))
        return (int)fails(-EINVAL);
    u8 *in = (u8 *)p + s.before;
    i64 r = s.before ? CALL3(SYS_madvise, p, s.before, advice) : 0;
    if (r >= 0 && s.after)
        r = CALL3(SYS_madvise, in + s.in, s.after, advice);
    lock();
    i64 err = window_advise(in, s.in, advice);
    unlock();
    return (int)fails(err < 0 ? err : r);
}

EXPORT int msync(void *p, u64 n, int flags)
{
    i64 r = CALL3(SYS_msync, p, n, flags);
    if (r >= 0 && !(flags & MS_ASYNC) && share_at(p, n) & SHARE_WRITE)
        r = share_sync(p, n);
    return (int)fails(r);
}

#define OPEN(name, head, args)                                                                                                                           \
    EXPORT int name head                                                                                                                                 \
    {                                                                                                                                                    \
        u32 mode = 0;                                                                                                                                    \
        if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                                                                       \
            va_list v;                                                                                                                                   \
            va_start(v, flags);                                                                                                                          \
            mode = va_arg(v, u32);                                                                                                                       \
            va_end(v);                                                                                                                                   \
        }                                                                                                                                                \
        flags = direct_open(flags);                                                                                                                      \
        i64 shared = share_open(path, flags);                                                                                                            \
        if (shared != -ENOENT)                                                                                                                           \
            return (int)fails(shared);                                                                                                                   \
        NEXT_OF(int (*) head, name);                                                                                                                     \
        return name##_next ? name##_next args : (int)fails(-ENOSYS);                                                                                     \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(__open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(__open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

/* Fortified programs call these where the flags are no constant. */
EXPORT int __open_2(const char *path, int flags) { return open(path, flags); }
EXPORT int __open64_2(const char *path, int flags) { return open64(path, flags); }
EXPORT int __openat_2(int at, const char *path, int flags) { return openat(at, path, flags); }
EXPORT int __openat64_2(int at, const char *path, int flags) { return openat64(at, path, flags); }

#define MAKE(name, head, type, args)                                                                                                                     \
    EXPORT int name head                                                                                                                                 \
    {                                                                                                                                                    \
        flags = direct_open(flags);                                                                                                                      \
        NEXT_OF(type, name);                                                                                                                             \
        return name##_next ? name##_next args : (int)fails(-ENOSYS);                                                                                     \
    }
MAKE(mkostemp, (char *path, int flags), int (*)(char *, int), (path, flags))
MAKE(mkostemp64, (char *path, int flags), int (*)(char *, int), (path, flags))
MAKE(mkostemps, (char *path, int suffix, int flags), int (*)(char *, int, int), (path, suffix, flags))
MAKE(mkostemps64, (char *path, int suffix, int flags), int (*)(char *, int, int), (path, suffix, flags))
MAKE(open_by_handle_at, (int at, void *handle, int flags), int (*)(int, void *, int), (at, handle, flags))

EXPORT i64 recvmsg(int fd, struct msghdr *m, int flags)
{
    NEXT_OF(i64 (*)(int, struct msghdr *, int), recvmsg);
    i64 r = recvmsg_next ? recvmsg_next(fd, m, flags) : fails(CALL3(SYS_recvmsg, fd, m, flags));
    if (r >= 0)
        direct_received(m);
    return r;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *m, u32 n, int flags, void *timeout)
{
    NEXT_OF(int (*)(int, struct mmsghdr *, u32, int, void *), recvmmsg);
    int r = recvmmsg_next ? recvmmsg_next(fd, m, n, flags, timeout) : (int)fails(CALL5(SYS_recvmmsg, fd, m, n, flags, timeout));
    for (int i = 0; i < r; i++)
        direct_received(&m[i].head);
    return r;
}

EXPORT int pidfd_getfd(int process, int theirs, u32 flags)
{
    i64 fd = CALL3(SYS_pidfd_getfd, process, theirs, flags);
    if (fd >= 0)
        direct_off((int)fd);
    return (int)fails(fd);
}

/* The library itself: LD_PRELOAD names it by its number (launch.go), so that what the program starts has it too. It may be closed in the child that is to be another
 * program, one of vfork with all memory the parent's: so nothing is remembered. */
enum { LIBRARY = 199 };
static int is_library(int fd)
{
    static const char name[] = "/memfd:wherry-shim";
    char link[sizeof name - 1];
    return fd == LIBRARY && CALL4(SYS_readlinkat, AT_FDCWD, "/proc/self/fd/199", link, sizeof link) == sizeof link && !__builtin_memcmp(link, name, sizeof link);
}

static int next_kept(u32 from) /* the lowest descriptor from a number on that stays open, -1: none */
{
    int fd = window_next(from);
    return from <= LIBRARY && (fd < 0 || fd > LIBRARY) && is_library(LIBRARY) ? LIBRARY : fd;
}

/* Programs close descriptors that they do not know, and put others at numbers that they like. */
EXPORT int close(int fd)
{
    if (window_owns(fd) || is_library(fd))
        return (int)fails(-EBADF);
    NEXT_OF(int (*)(int), close);
    return close_next ? close_next(fd) : (int)fails(CALL1(SYS_close, fd));
}

EXPORT int dup2(int fd, int to)
{
    if (fd != to && window_owns(to) && !window_vacate(to))
        return (int)fails(-EBADF);
    NEXT_OF(int (*)(int, int), dup2);
    return dup2_next ? dup2_next(fd, to) : (int)fails(CALL3(SYS_dup3, fd, to, 0));
}

EXPORT int dup3(int fd, int to, int flags)
{
    if (fd != to && window_owns(to) && !window_vacate(to))
        return (int)fails(-EBADF);
    return (int)fails(CALL3(SYS_dup3, fd, to, flags));
}

EXPORT int close_range(u32 first, u32 last, int flags)
{
    int kept;
    i64 r = first > last ? -EINVAL : 0;
    while (r >= 0 && first <= last && (kept = next_kept(first)) >= 0 && (u32)kept <= last) {
        if ((u32)kept > first)
            r = CALL3(SYS_close_range, first, kept - 1, flags);
        first = (u32)kept + 1;
    }
    if (r >= 0 && first <= last)
        r = CALL3(SYS_close_range, first, last, flags);
    return (int)fails(r);
}

EXPORT void closefrom(int low) { close_range(low < 0 ? 0 : (u32)low, ~0u, 0); }

static u64 fcntl_argument(int fd, int command, u64 arg)
{
    if (command == F_SETFL)
        return direct_set(fd, arg);
    return command == F_SETFD && is_library(fd) ? arg & ~(u64)FD_CLOEXEC : arg;
}

#define FCNTL(name)                                                                                                                                      \
    EXPORT int name(int fd, int command, ...)                                                                                                            \
    {                                                                                                                                                    \
        va_list v;                                                                                                                                       \
        va_start(v, command);                                                                                                                            \
        u64 arg = va_arg(v, u64);                                                                                                                        \
        va_end(v);                                                                                                                                       \
        arg = fcntl_argument(fd, command, arg);                                                                                                          \
        NEXT_OF(int (*)(int, int, ...), name);                                                                                                           \
        return name##_next ? name##_next(fd, command, arg) : (int)fails(CALL3(SYS_fcntl, fd, command, arg));                                             \
    }
FCNTL(fcntl)
FCNTL(fcntl64)
FCNTL(__fcntl)

/* io_uring pins pages as O_DIRECT does. */
static int no_uring(void)
{
    count(&counters->uring, 1);
    return -ENOSYS;
}

/* What a program calls by its number, and is taken over: through the function of that name. */
static int by_number(i64 n, const i64 a[6], i64 *r)
{
    switch (n) {
    case SYS_close:
        *r = close((int)a[0]);
        return 1;
    case SYS_close_range:
        *r = close_range((u32)a[0], (u32)a[1], (int)a[2]);
        return 1;
#ifdef __x86_64__
    case SYS_dup2:
        *r = dup2((int)a[0], (int)a[1]);
        return 1;
#endif
    case SYS_dup3:
        *r = dup3((int)a[0], (int)a[1], (int)a[2]);
        return 1;
    case SYS_mmap:
        *r = (i64)mmap((void *)a[0], (u64)a[1], (int)a[2], (int)a[3], (int)a[4], a[5]);
        return 1;
    case SYS_munmap:
        *r = munmap((void *)a[0], (u64)a[1]);
        return 1;
    case SYS_mremap:
        *r = (i64)mremap((void *)a[0], (u64)a[1], (u64)a[2], (int)a[3], (void *)a[4]);
        return 1;
    case SYS_mprotect:
        *r = mprotect((void *)a[0], (u64)a[1], (int)a[2]);
        return 1;
    case SYS_pkey_mprotect:
        *r = pkey_mprotect((void *)a[0], (u64)a[1], (int)a[2], (int)a[3]);
        return 1;
    case SYS_madvise:
        *r = madvise((void *)a[0], (u64)a[1], (int)a[2]);
        return 1;
    case SYS_msync:
        *r = msync((void *)a[0], (u64)a[1], (int)a[2]);
        return 1;
    }
    return 0;
}

EXPORT i64 syscall(i64 n, ...)
{
    i64 a[6];
    va_list v;
    va_start(v, n);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(v, i64);
    va_end(v);
    if (window_on && n == SYS_io_uring_setup)
        return fails(no_uring());
    i64 r;
    if (by_number(n, a, &r))
        return r;
    if (n == SYS_fcntl)
        a[2] = (i64)fcntl_argument((int)a[0], (int)a[1], (u64)a[2]);
    r = CALL6(n, a[0], a[1], a[2], a[3], a[4], a[5]);
    direct_called(n, a, r);
    return fails(r);
}

#define URING(name, head, type, args)                                                                                                                    \
    EXPORT int name head                                                                                                                                 \
    {                                                                                                                                                    \
        if (window_on)                                                                                                                                   \
            return no_uring();                                                                                                                           \
        NEXT_OF(type, name);                                                                                                                             \
        return name##_next ? name##_next args : -ENOSYS;                                                                                                 \
    }
URING(io_uring_queue_init, (u32 n, void *ring, u32 flags), int (*)(u32, void *, u32), (n, ring, flags))
URING(io_uring_queue_init_params, (u32 n, void *ring, void *p), int (*)(u32, void *, void *), (n, ring, p))
URING(io_uring_queue_init_mem, (u32 n, void *ring, void *p, void *b, u64 size), int (*)(u32, void *, void *, void *, u64), (n, ring, p, b, size))

/* A child has its own copy of the window. The handlers run last before the fork and first after it, as they are registered before all
 * others (the library is linked with -z initfirst), so that those find the memory in place, and take their locks while this one is free. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern int pthread_atfork(void (*)(void), void (*)(void), void (*)(void)) __attribute__((weak));
static i64 refused; /* the thread whose fork was refused */

static void before_fork(void)
{
    lock();
    fork_begins();
}

static void in_parent(void)
{
    i64 thread = CALL0(SYS_gettid), of_it = thread;
    if (fork_ends())
        __atomic_store_n(&refused, thread, __ATOMIC_RELAXED);
    else
        __atomic_compare_exchange_n(&refused, &of_it, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* The window is copied by the handler that runs last, as others take locks that other threads hold while they wait for ours. A handler
 * cannot refuse: a child without a copy ends at once, and fork says why there is none. */
EXPORT int fork(void)
{
    NEXT_OF(int (*)(void), fork);
    if (!fork_next)
        return (int)fails(-ENOSYS);
    int child = fork_next();
    i64 thread = CALL0(SYS_gettid);
    if (!window_on || child <= 0 || !__atomic_compare_exchange_n(&refused, &thread, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return child;
    while (CALL4(SYS_wait4, child, 0, 0, 0) == -EINTR)
        ;
    return (int)fails(-ENOMEM);
}

__attribute__((constructor)) static void start(void)
{
    next("malloc", &malloc_next);
    next("calloc", &calloc_next);
    lock();
    window_open();
    unlock();
    if (!window_on)
        return;
    direct_inherited();
    if (__register_atfork)
        __register_atfork(before_fork, in_parent, fork_in_child, 0);
    else if (pthread_atfork)
        pthread_atfork(before_fork, in_parent, fork_in_child);
}

__attribute__((destructor)) static void end(void)
{
    if (window_on)
        window_besides();
}
