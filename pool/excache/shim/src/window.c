#include "window.h"

/* As session.go has them. */
#define MAGIC 0x314e555259524857ul
/* Ranges, used and free in turn; the table is that many times 24 bytes of addresses. */
#define MAX_RANGES (1u << 20)
#define ROOM (16ul << 20)
/* The window's descriptors are from here on where the limit of open files allows it; above the shim's own. */
#define HIGH_FD 200
/* So long a signal waits that ends the program, while the daemon is being asked. */
#define WAIT_MS 100

int window_on;
u8 *window_base;
u64 window_size, window_least;
static struct counters no_counters;
struct counters *counters = &no_counters;

enum { CLEAN = 0, DEAD = 1, USED = 2, GONE = 3 }; /* free and zero; free, but the daemon does not know it yet; in use; whole rooms that serve other addresses now */
enum { ALTERED = 1, FOREIGN = 2, ALLOCATED = 4, PART = 8 }; /* an allocation begins there; the one before goes on */
struct range { u64 off, len; u32 kind, flags; };
static struct range *ranges; /* sorted, side by side, from 0 to taken_to */
static u32 range_count;
static u64 top;      /* end of the last range */
static u64 room;     /* end of the rooms that the daemon gave */
static u64 open_to;  /* as far the program may access the window: where it has no room yet an access is a SIGSEGV, and nothing is read in by mlockall */
static u64 dead;     /* bytes of DEAD ranges */
static u64 untold;   /* so many of them are told together, at the latest */
static int wire = -1, faults = -1, file = -1, life = -1;
static i64 self;     /* the process that has them */
static char daemon_path[128];

/* What the daemon says first on a connection, and the descriptors that come with it. */
struct welcome { u64 magic, size, least, session, untold; int wire, file, counters, life; };
static struct welcome child = {.wire = -1}; /* of the child that is being forked */

void say(const char *what)
{
    u64 n = 0;
    while (what[n])
        n++;
    CALL3(SYS_write, 2, what, n);
}

void fail(const char *why)
{
    say("wherry run: ");
    say(why);
    CALL1(SYS_exit_group, 125);
    for (;;)
        ;
}

static void send_all(const void *b, u64 n)
{
    while (n) {
        struct iovec v = {(void *)b, n};
        struct msghdr m = {.iov = &v, .iovlen = 1};
        i64 k = CALL3(SYS_sendmsg, wire, &m, MSG_NOSIGNAL);
        if (k == -EINTR)
            continue;
        if (k <= 0)
            fail("the daemon of remote memory is gone\n");
        b = (const u8 *)b + k;
        n -= (u64)k;
    }
}

/* Whether an answer is to be waited for again. */
static int patient(i64 r)
{
    if (r == -EAGAIN) /* WAIT_MS are over */
        lock_waits();
    return r == -EAGAIN || r == -EINTR;
}

static void receive_all(void *b, u64 n)
{
    while (n) {
        i64 k = CALL3(SYS_read, wire, b, n);
        if (patient(k))
            continue;
        if (k <= 0)
            fail("the daemon of remote memory is gone\n");
        b = (u8 *)b + k;
        n -= (u64)k;
    }
}

/* Reads a message's first bytes, and up to three descriptors that come with it: -1 for those that do not. 0: the daemon has closed the connection. */
static int received(int from, void *b, u64 n, int fds[3])
{
    struct rights c = {0};
    struct iovec v = {b, n};
    struct msghdr m = {.iov = &v, .iovlen = 1, .control = &c, .controllen = sizeof c};
    i64 k;
    do
        k = CALL3(SYS_recvmsg, from, &m, MSG_CMSG_CLOEXEC);
    while (patient(k));
    for (u64 i = 0; i < 3; i++)
        fds[i] = k > 0 && m.controllen >= 16 && c.type == SCM_RIGHTS && c.len >= 16 + (i + 1) * sizeof(int) ? c.fds[i] : -1;
    if (k <= 0)
        return 0;
    if ((u64)k < n)
        fail("the daemon of remote memory speaks another language\n");
    return 1;
}

u64 ask(u64 call, u64 pairs, u64 argument, const u64 *list, struct reply *to)
{
    u64 head[4] = {call, pairs, argument, 0}, answer[2];
    int fds[3];
    send_all(head, sizeof head);
    if (pairs)
        send_all(list, 16 * pairs);
    if (!received(wire, answer, sizeof answer, fds))
        fail("the daemon of remote memory is gone\n");
    if (call == CALL_TAKE || call == CALL_MOVE)
        room = answer[1];
    if (to)
        *to = (struct reply){answer[1], fds[0]};
    return answer[0];
}

static u32 find(u64 off) /* the range that has off */
{
    u32 low = 0, high = range_count;
    while (high - low > 1) {
        u32 mid = (low + high) / 2;
        if (ranges[mid].off <= off)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static void move(u32 to, u32 from)
{
    __builtin_memmove(ranges + to, ranges + from, (range_count - from) * sizeof *ranges);
    range_count = range_count - from + to;
}

/* Cuts a range so that one begins at off; returns it. */
static u32 cut(u64 off)
{
    if (off >= top)
        return range_count;
    u32 i = find(off);
    struct range *r = ranges + i;
    if (r->off == off)
        return i;
    u64 first = off - r->off;
    u32 end = range_count;
    __builtin_memmove(r + 1, r, (end - i) * sizeof *r);
    range_count++;
    r[1].off = off;
    r[1].len = r->len - first;
    r->len = first;
    if (r->flags & ALLOCATED)
        r[1].flags = (r->flags & ~(u32)ALLOCATED) | PART;
    return i + 1;
}

/* Joins range i with the one before it if they are of one kind. Ranges in use are kept apart: each is an allocation. */
static int join(u32 i)
{
    if (i == 0 || i >= range_count || ranges[i].kind == USED || ranges[i - 1].kind != ranges[i].kind)
        return 0;
    ranges[i - 1].len += ranges[i].len;
    move(i, i + 1);
    return 1;
}

static void tell(void) /* the daemon about all dead ranges; they are clean then */
{
    u64 list[2 * MAX_PAIRS], n = 0;
    for (u32 i = 0; i < range_count; i++) {
        if (ranges[i].kind != DEAD)
            continue;
        list[2 * n] = ranges[i].off;
        list[2 * n + 1] = ranges[i].len;
        if (++n == MAX_PAIRS) {
            ask(CALL_FREE, n, 0, list, 0);
            n = 0;
        }
        ranges[i].kind = CLEAN;
    }
    if (n)
        ask(CALL_FREE, n, 0, list, 0);
    dead = 0;
    u32 to = 0; /* join what is free now, in one go */
    for (u32 i = 1; i < range_count; i++) {
        if (ranges[i].kind == CLEAN && ranges[to].kind == CLEAN)
            ranges[to].len += ranges[i].len;
        else
            ranges[++to] = ranges[i];
    }
    if (range_count)
        range_count = to + 1;
}

static u8 *use(u32 i, u64 at, u64 n, int how) /* part of a free range */
{
    u32 kind = ranges[i].kind;
    i = cut(at);
    cut(at + n);
    if (kind == DEAD)
        dead -= n;
    ranges[i].kind = USED;
    ranges[i].flags = how & OBJECT ? ALLOCATED : 0;
    return window_base + at;
}

static u8 *fit(u64 n, u64 align, int how)
{
    for (u32 i = 0; i < range_count; i++) {
        struct range *r = ranges + i;
        if (r->kind == USED || r->kind == GONE || (how & CLEARED && r->kind == DEAD))
            continue;
        u64 at = (r->off + align - 1) & -align;
        if (at - r->off <= r->len && r->len - (at - r->off) >= n)
            return use(i, at, n, how);
    }
    return 0;
}

void window_besides(void)
{
    static const char name[] = "\nRssAnon:";
    char b[4096];
    u64 matched = 0, kib = 0;
    i64 fd = CALL4(SYS_openat, AT_FDCWD, "/proc/self/status", O_CLOEXEC, 0);
    i64 n = fd < 0 ? 0 : CALL3(SYS_read, fd, b, sizeof b);
    if (fd >= 0)
        CALL1(SYS_close, fd);
    for (i64 i = 0; i < n; i++) {
        if (matched < sizeof name - 1)
            matched = b[i] == name[matched] ? matched + 1 : b[i] == name[0];
        else if (b[i] >= '0' && b[i] <= '9')
            kib = kib * 10 + (u64)(b[i] - '0');
        else if (kib)
            break;
    }
    if (kib << 10 > __atomic_load_n(&counters->anonymous, __ATOMIC_RELAXED))
        __atomic_store_n(&counters->anonymous, kib << 10, __ATOMIC_RELAXED);
}

i64 watch_part(u64 at, u64 n)
{
    u64 arg[4] = {at, n, 7, 0}; /* missing, protected, minor */
    i64 r = CALL3(SYS_ioctl, faults, 0xc020aa00, arg);
    if (r >= 0)
        r = CALL3(SYS_madvise, at, n, MADV_DONTFORK);
    return r < 0 ? r : CALL3(SYS_madvise, at, n, MADV_DONTDUMP); /* the kernel would walk it all, and bring what is away */
}

/* Maps a part of the window where it belongs, and watches it. */
static i64 map_part(u64 off, u64 n, int fixed)
{
    u64 at = (u64)window_base + off, usable = off >= open_to ? 0 : off + n < open_to ? n : open_to - off;
    if (!n)
        return 0;
    i64 r = CALL6(SYS_mmap, at, n, 0, MAP_SHARED | MAP_NORESERVE | fixed, file, off);
    if (r < 0 && r > -4096)
        return r;
    r = watch_part(at, n);
    return r < 0 || !usable ? r : CALL3(SYS_mprotect, at, usable, PROT_READ | PROT_WRITE);
}

/* Has the program access all rooms; 0 if that cannot be. */
static int open_rooms(void)
{
    if (open_to < room && CALL3(SYS_mprotect, window_base + open_to, room - open_to, PROT_READ | PROT_WRITE) == 0)
        open_to = room;
    return open_to == room;
}

static void turn(u64 off, u32 kind) /* a room that is free or gone into the other */
{
    u32 i = cut(off);
    cut(off + ROOM);
    ranges[i].kind = kind;
    ranges[i].flags = 0;
    i -= (u32)join(i);
    join(i + 1);
}

/* Has up to n rooms of which nothing is in use, but for those from begin to end, serve the addresses at every second place of the list, and says how many do:
 * all or, with some of them, fewer. */
static u64 move_rooms(u64 *list, u64 n, u64 begin, u64 end, int some)
{
    u64 have = 0;
    for (u32 i = 0; i < range_count && have < n; i++) {
        u64 to = ranges[i].off + ranges[i].len;
        for (u64 at = (ranges[i].off + ROOM - 1) & -ROOM; ranges[i].kind == CLEAN && at + ROOM <= to && have < n; at += ROOM)
            if (at + ROOM <= begin || at >= end)
                list[2 * have++] = at;
    }
    if (!have || (have < n && !some) || range_count + 4 * have + 8 > MAX_RANGES || ask(CALL_MOVE, have, 0, list, 0))
        return 0;
    for (u64 k = 0; k < have; k++)
        turn(list[2 * k], GONE);
    return have;
}

/* Moves rooms to where others have gone, if n bytes fit there and in what is free beside them. */
static int refill(u64 n, u64 align)
{
    u64 list[2 * MAX_PAIRS];
    for (u32 i = 0, k; i < range_count; i = k + 1) {
        u64 at = (ranges[i].off + align - 1) & -align, need = 0;
        for (k = i; k < range_count && (ranges[k].kind == CLEAN || ranges[k].kind == GONE); k++) {
            u64 to = ranges[k].off + ranges[k].len;
            for (u64 r = ranges[k].off; ranges[k].kind == GONE && r < to && need < MAX_PAIRS; r += ROOM)
                if (r + ROOM > at && r < at + n)
                    list[2 * need++ + 1] = r;
        }
        if (k == i || at + n > ranges[k - 1].off + ranges[k - 1].len || !need || need == MAX_PAIRS || !move_rooms(list, need, at, at + n, 0))
            continue;
        for (u64 j = 0; j < need; j++) {
            if (map_part(list[2 * j + 1], ROOM, MAP_FIXED) < 0) /* without marks of accesses while there was no room */
                fail("a part of the window cannot be taken back\n");
            turn(list[2 * j + 1], CLEAN);
        }
        return 1;
    }
    return 0;
}

/* Moves rooms behind the last one, so that there are rooms up to end, or fewer; none of those from begin on. */
static void bring(u64 end, u64 begin)
{
    u64 list[2 * MAX_PAIRS], n = end > room && end <= window_size ? (end - room + ROOM - 1) / ROOM : 0;
    for (u64 i = 0; i < n && i < MAX_PAIRS; i++)
        list[2 * i + 1] = room + i * ROOM;
    if (n)
        move_rooms(list, n < MAX_PAIRS ? n : MAX_PAIRS, begin, top, 1);
}

/* Adds n clean bytes at the end; 0 if there is no room. Rooms from begin on stay where they are. */
static int grow(u64 n, u64 begin)
{
    if (n > window_size - top || range_count + 4 > MAX_RANGES)
        return 0;
    bring(top + n, begin);
    if (top + n > room) {
        window_besides();
        if (ask(CALL_TAKE, 0, top + n, 0, 0))
            return 0;
    }
    if (!open_rooms())
        return 0;
    ranges[range_count] = (struct range){top, n, CLEAN, 0};
    range_count++;
    top += n;
    join(range_count - 1);
    return 1;
}

u8 *window_take(u64 n, u64 align, int how)
{
    if (!n || n > window_size || align > window_size || range_count + 4 > MAX_RANGES)
        return 0;
    u8 *p = fit(n, align, how);
    if (!p && dead) {
        tell();
        p = fit(n, align, how);
    }
    if (!p && refill(n, align))
        p = fit(n, align, how);
    if (p)
        return p;
    u64 at = (top + align - 1) & -align, last = range_count ? range_count - 1 : 0;
    u64 have = 0;
    if (range_count && ranges[last].kind == CLEAN) { /* it only needs to be longer */
        at = (ranges[last].off + align - 1) & -align;
        have = top > at ? top - at : 0;
    }
    u64 more = at > top ? at - top + n : n - have;
    if (!grow(more, range_count && ranges[last].kind == CLEAN ? ranges[last].off : top)) {
        count(&counters->refused, 1);
        return 0;
    }
    return fit(n, align, how);
}

static void restore(u64 off, u64 n, u32 flags)
{
    if (flags & FOREIGN) {
        if (map_part(off, n, MAP_FIXED) < 0)
            fail("a part of the window cannot be taken back\n");
    } else if (flags & ALTERED && CALL4(SYS_pkey_mprotect, window_base + off, n, PROT_READ | PROT_WRITE, 0) < 0) /* mprotect alone leaves a key there */
        CALL3(SYS_mprotect, window_base + off, n, PROT_READ | PROT_WRITE); /* the kernel knows no keys */
}

void window_give(u8 *p, u64 n)
{
    u64 off = (u64)(p - window_base);
    if (off >= top)
        return;
    if (n > top - off)
        n = top - off;
    if (range_count + 4 > MAX_RANGES) /* no place to cut: it stays in use */
        return;
    u32 i = cut(off);
    u32 end = cut(off + n);
    for (u32 k = i; k < end; k++) {
        struct range *r = ranges + k;
        if (r->kind != USED)
            continue;
        if (r->flags & (ALTERED | FOREIGN))
            restore(r->off, r->len, r->flags);
        r->flags = 0;
        r->kind = DEAD;
        dead += r->len;
    }
    for (u32 k = end; k < range_count && ranges[k].flags & PART; k++) /* what lay before it is gone, and may be another allocation soon */
        ranges[k].flags &= ~(u32)PART;
    for (u32 k = end < range_count ? end : range_count - 1; k > 0 && k + 1 > i; k--)
        join(k);
    if (dead >= untold)
        tell();
}

int window_extend(u8 *p, u64 n, u64 more)
{
    u64 end = (u64)(p - window_base) + n;
    u32 i = find(end - 1);
    if (ranges[i].kind != USED || ranges[i].off + ranges[i].len != end)
        return 0;
    if (i + 1 < range_count && ranges[i + 1].kind == DEAD && ranges[i + 1].len >= more) {
        tell();
        i = find(end - 1); /* ranges before it were joined */
    }
    if (end == top && !grow(more, top))
        return 0;
    i = find(end - 1);
    if (i + 1 >= range_count || ranges[i + 1].kind != CLEAN || ranges[i + 1].len < more)
        return 0;
    cut(end + more);
    ranges[i].len += more;
    move(i + 1, i + 2);
    return 1;
}

/* The range that begins an allocation, or range_count; *end is where that ends. */
static u32 allocation(u64 off, u64 *end)
{
    u32 i = off < top ? find(off) : range_count;
    while (i < range_count && ranges[i].flags & PART && i)
        i--;
    if (i == range_count || ranges[i].kind != USED || !(ranges[i].flags & ALLOCATED))
        return range_count;
    u32 k = i + 1;
    while (k < range_count && ranges[k].flags & PART)
        k++;
    *end = ranges[k - 1].off + ranges[k - 1].len;
    return i;
}

u64 window_length(u8 *p)
{
    u64 off = (u64)(p - window_base), end = 0;
    u32 i = allocation(off, &end);
    return i < range_count && ranges[i].off == off ? end - off : 0;
}

static void zero(u64 off, u64 n, int advice) /* if that is the advice; all else is about memory that is not the kernel's to place */
{
    u64 pair[2] = {off, n};
    if (n && (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_DONTNEED_LOCKED))
        ask(CALL_FREE, 1, 0, pair, 0);
}

i64 window_advise(u8 *p, u64 n, int advice)
{
    u64 off = (u64)(p - window_base), end = off + n;
    for (u32 i = off < top ? find(off) : range_count; i < range_count && ranges[i].off < end; i++) {
        u64 from = ranges[i].off, to = from + ranges[i].len;
        if (!(ranges[i].flags & FOREIGN))
            continue;
        from = from < off ? off : from, to = to > end ? end : to;
        zero(off, from - off, advice);
        i64 r = CALL3(SYS_madvise, window_base + from, to - from, advice);
        if (r < 0)
            return r;
        off = to;
    }
    zero(off, end - off, advice);
    return 0;
}

void window_altered(u8 *p, u64 n)
{
    u64 off = (u64)(p - window_base), end = off + n;
    if (off >= top)
        return;
    for (u32 i = find(off); i < range_count && ranges[i].off < end; i++)
        if (ranges[i].kind == USED)
            ranges[i].flags |= ALTERED;
}

int window_prepare(u8 *p, u64 n)
{
    u64 off = (u64)(p - window_base);
    if (n > window_size - off || range_count + 10 > MAX_RANGES || (off + n > top && !grow(off + n - top, off)))
        return 0;
    for (u32 i = off < top ? find(off) : range_count; i < range_count && ranges[i].off < off + n; i++)
        if (ranges[i].kind == GONE)
            return 0;
    return 1;
}

void window_claim(u8 *p, u64 n, int foreign)
{
    u64 off = (u64)(p - window_base), begin = 0, end = 0;
    u32 i = allocation(off, &end);
    if (i < range_count)
        begin = ranges[i].off;
    i = cut(off);
    for (u32 k = cut(off + n); foreign && i < k; i++) /* it is replaced already, and not to be mended */
        ranges[i].flags &= ~(u32)(ALTERED | FOREIGN);
    window_give(p, n);
    if (dead)
        tell();
    if (end > off && end < off + n)
        cut(end);
    i = cut(off);
    for (u32 k = cut(off + n); i < k; i++) {
        ranges[i].kind = USED;
        ranges[i].flags = (foreign ? FOREIGN : 0) | (ranges[i].off >= end ? 0 : ranges[i].off == begin ? ALLOCATED : PART);
    }
    for (; i < range_count && ranges[i].off < end; i++)
        ranges[i].flags |= PART;
}

static i64 connect_to(const char *path)
{
    struct { unsigned short family; char path[108]; } a = {AF_UNIX, {0}};
    u32 n = 0;
    for (; path[n]; n++) {
        if (n == sizeof a.path - 1)
            return -ENAMETOOLONG;
        a.path[n] = path[n];
    }
    i64 s = CALL3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0;
    const u64 slice[2] = {0, WAIT_MS * 1000};
    if (s < 0)
        return s;
    if ((err = CALL5(SYS_setsockopt, s, SOL_SOCKET, SO_RCVTIMEO, slice, sizeof slice)) < 0 || (err = CALL3(SYS_connect, s, &a, 3 + n)) < 0) {
        CALL1(SYS_close, s);
        return err;
    }
    return s;
}

/* The kernel kills this process when the daemon ends and its end of this pipe closes; nothing is ever written to it. The last
 * userfaultfd is this process's, so until then faults wait, and no page reads as zeros. */
static int die_with(int pipe)
{
    i64 pid = CALL0(SYS_getpid);
    return CALL3(SYS_fcntl, pipe, F_SETSIG, SIGKILL) < 0 || CALL3(SYS_fcntl, pipe, F_SETOWN, pid) < 0 ||
           CALL3(SYS_fcntl, pipe, F_SETFL, O_ASYNC | O_NONBLOCK) < 0;
}

/* Programs use low descriptors by number (a shell's exec 3>file). */
static int above(int fd)
{
    i64 high = fd < 0 ? -1 : CALL3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0)
        return fd; /* fewer may be open */
    CALL1(SYS_close, fd);
    return (int)high;
}

static i64 open_faults(void)
{
    /* UFFD_FEATURE_*: write-protection told and of memfds, thread ids, missing and minor faults of memfds, poison; and protection
     * of pages that are missing. */
    u64 api[3] = {0xaa, 1 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 14, 0};
    i64 fd = CALL1(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        i64 device = CALL4(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC, 0);
        if (device < 0)
            return fd;
        fd = CALL3(SYS_ioctl, device, 0xaa00, O_CLOEXEC | O_NONBLOCK);
        CALL1(SYS_close, device);
        if (fd < 0)
            return fd;
    }
    i64 err = CALL3(SYS_ioctl, fd, 0xc018aa3f, api);
    return err < 0 ? err : fd;
}

/* Opens a userfaultfd, and maps the window: anywhere, or in a forked child where the parent had it, but for what the child inherited
 * there. */
static i64 watch(int forked)
{
    i64 fd = open_faults(), err = 0;
    if (fd < 0)
        return fd;
    faults = above((int)fd);
    if (!forked) {
        i64 at = CALL6(SYS_mmap, 0, window_size, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at < 0 && at > -4096)
            return at;
        window_base = (u8 *)at;
        return map_part(0, window_size, MAP_FIXED);
    }
    u64 off = 0;
    for (u32 i = 0; err >= 0 && i < range_count; i++)
        if (ranges[i].flags & FOREIGN) {
            err = map_part(off, ranges[i].off - off, MAP_FIXED_NOREPLACE);
            off = ranges[i].off + ranges[i].len;
        }
    return err < 0 ? err : map_part(off, window_size - off, MAP_FIXED_NOREPLACE);
}

static void close_all(struct welcome *w)
{
    CALL1(SYS_close, w->wire);
    CALL1(SYS_close, w->file);
    CALL1(SYS_close, w->counters);
    CALL1(SYS_close, w->life);
    w->wire = -1;
}

/* Connects to the daemon and hears its welcome; or an error: -EMFILE if the process has no room for the descriptors that come with it, -ECONNRESET if the daemon
 * has closed the connection. */
static i64 meet(const char *path, struct welcome *to)
{
    u64 words[5];
    int fds[3];
    i64 s = connect_to(path);
    if (s < 0)
        return s;
    *to = (struct welcome){.wire = (int)s, .file = -1, .counters = -1, .life = -1};
    if (!received(to->wire, words, sizeof words, fds)) {
        close_all(to);
        return -ECONNRESET;
    }
    if (words[0] != MAGIC)
        fail("the daemon of remote memory speaks another language\n");
    to->magic = words[0], to->size = words[1], to->least = words[2], to->session = words[3], to->untold = words[4];
    to->file = fds[0], to->counters = fds[1], to->life = fds[2];
    if (fds[2] >= 0)
        return 0;
    close_all(to);
    return -EMFILE;
}

int window_owns(int fd)
{
    /* A child of vfork shares this memory, but not the descriptors. */
    return window_on && fd >= 0 && (fd == wire || fd == faults || fd == file || fd == life) && CALL0(SYS_getpid) == self;
}

/* The daemon hears that the process has ended when its descriptors close, so a program that closes what it does not know must not. */
int window_vacate(int fd)
{
    int done = 1;
    lock();
    if (window_owns(fd)) {
        i64 to = CALL3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_FD);
        int *have = fd == wire ? &wire : fd == faults ? &faults : fd == file ? &file : &life;
        if (to < 0)
            done = 0;
        else
            *have = (int)to;
    }
    unlock();
    return done;
}

int window_next(u32 from) /* the lowest of the window's descriptors from a number on, -1: none */
{
    const int all[4] = {wire, faults, file, life};
    int best = -1;
    for (int i = 0; i < 4; i++)
        if (window_owns(all[i]) && (u32)all[i] >= from && (best < 0 || all[i] < best))
            best = all[i];
    return best;
}

static void join_session(const struct welcome *w, int forked)
{
    u64 answer[2];
    self = CALL0(SYS_getpid);
    wire = above(w->wire), file = above(w->file), life = above(w->life);
    window_size = w->size, window_least = w->least, untold = w->untold;
    i64 err = die_with(life) ? -EINVAL : 0;
    i64 shared = CALL6(SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, w->counters, 0);
    CALL1(SYS_close, w->counters);
    if (!err)
        err = shared < 0 && shared > -4096 ? shared : watch(forked);
    u64 hello[4] = {MAGIC, (u64)window_base, (u64)CALL0(SYS_getpid), (u64)(err < 0 ? -err : 0)};
    struct rights out = {16 + sizeof(int), SOL_SOCKET, SCM_RIGHTS, {faults}};
    struct iovec v = {hello, sizeof hello};
    struct msghdr o = {.iov = &v, .iovlen = 1};
    if (err >= 0) {
        o.control = &out;
        o.controllen = 24;
    }
    if (CALL3(SYS_sendmsg, wire, &o, MSG_NOSIGNAL) != sizeof hello || err < 0)
        fail("this process cannot have remote memory\n"); /* the daemon says why */
    receive_all(answer, sizeof answer);
    if (answer[0]) /* the parent says why there is no copy */
        CALL1(SYS_exit_group, 125);
    counters = (struct counters *)shared;
    window_on = 1;
}

i64 window_fork(void)
{
    tell(); /* what is dead is not copied */
    i64 unmet = meet(daemon_path, &child);
    if (unmet < 0) {
        fork_unmet(-unmet, daemon_path);
        return -ENOMEM;
    }
    u64 err = ask(CALL_FORK, 0, child.session, 0, 0);
    if (err)
        close_all(&child);
    return -(i64)err;
}

void window_forked(void)
{
    CALL1(SYS_close, wire);
    CALL1(SYS_close, faults);
    CALL1(SYS_close, file);
    CALL1(SYS_close, life);
    CALL2(SYS_munmap, counters, PAGE);
    join_session(&child, 1);
    child.wire = -1;
    share_forked();
    lock_forked();
}

i64 window_parted(int forked)
{
    u64 err = forked ? ask(CALL_PARTED, 0, 0, 0, 0) : 0;
    if (child.wire >= 0)
        close_all(&child);
    unlock();
    return -(i64)err;
}

/* The address of the daemon is in the environment; the C library may not have read it yet. */
void window_open(void)
{
    static const char name[] = "WHERRY_RUN=";
    char *path = daemon_path;
    char b[4096];
    i64 fd = CALL4(SYS_openat, AT_FDCWD, "/proc/self/environ", O_CLOEXEC, 0);
    if (fd < 0)
        return;
    u64 matched = 0, n = 0; /* characters of name, or with all of them, of the value */
    int start = 1, done = 0;
    i64 k;
    while (!done && (k = CALL3(SYS_read, fd, b, sizeof b)) > 0) {
        for (i64 i = 0; i < k && !done; i++) {
            if (matched == sizeof name - 1) {
                if (!b[i] || n == sizeof daemon_path - 1)
                    done = 1;
                else
                    path[n++] = b[i];
            } else if (!b[i]) {
                start = 1;
                matched = 0;
            } else if (start && b[i] == name[matched])
                matched++;
            else
                start = 0;
        }
    }
    CALL1(SYS_close, fd);
    if (!n)
        return;
    struct welcome w;
    i64 unmet = meet(path, &w);
    if (unmet == -EMFILE || unmet == -ENFILE)
        fail("the process has no descriptors free for remote memory (ulimit -n)\n");
    if (unmet == -ECONNRESET)
        fail("this process cannot have remote memory\n"); /* the daemon says why */
    if (unmet == -EACCES || unmet == -EPERM)
        fail("this process may not reach the daemon of remote memory: it runs as another user than wherry run, or a filter of system calls (seccomp) forbids it\n");
    if (unmet == -ENOSYS) {
        say("wherry run: a process goes on without remote memory: a filter of system calls (seccomp) keeps it from the daemon\n");
        return;
    }
    if (unmet < 0)
        fail("no daemon of remote memory answers; the program was started by one that has ended\n");
    i64 table = CALL6(SYS_mmap, 0, MAX_RANGES * sizeof *ranges, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table < 0 && table > -4096)
        fail("no addresses are left for the table of remote memory (ulimit -v)\n");
    ranges = (struct range *)table;
    join_session(&w, 0);
}
