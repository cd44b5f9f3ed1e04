/* What makes workers: a process that has nothing but this, so that a fork costs little and no worker finds anything in it.  For each
 * byte that the node sends, it forks a blank worker, which has a socket of its own: there it hears what it is to have in its memory, once, and
 * becomes a worker.  So the fork is over before there is anything to run.  nursery.go writes what blanks are told, and what stands under Settings. */
#include "sys.h"

enum { SOCKET = 3, MAX_MAPS = 256, MAX_FILES = 253 };

struct map {
    u64 addr, size, offset;
    u32 file, rights; /* which of the descriptors that come along; WRITE, EXEC */
};
enum { WRITE = 1, EXEC = 2 };

struct request {
    u64 entry, stack;
    u64 maps;
    struct map map[MAX_MAPS];
};
_Static_assert(sizeof(struct map) == 32, "nursery.go");
_Static_assert(__builtin_offsetof(struct request, map) == 24, "nursery.go");

struct answer { i32 pid; u32 error; }; /* pid with a descriptor: the blank's socket */

/* Settings. */
__attribute__((section(".data.settings"))) u64 nursery_node = 1;                 /* the process that asks */
__attribute__((section(".data.settings"))) u64 nursery_filter_length = 1;        /* what workers install, in instructions */
__attribute__((section(".data.settings"))) u64 nursery_filter[512] = {1};        /* struct sock_filter */

static struct request request;
static struct { u64 size; i32 level, type; i32 fd[MAX_FILES + 1]; } rights __attribute__((aligned(8)));

struct message { void *name; u64 name_size; void *parts; u64 count; void *control; u64 control_size; u32 flags; };

enum { EINTR = 4, EINVAL = 22 };

/* Takes a request from a blank's socket, and says how many descriptors came with it; 0 bytes: nobody wants this worker; less: nothing can be heard any more. */
static i64 take(i32 from, u64 *files)
{
    enum { MSG_TRUNC = 0x20, MSG_CTRUNC = 8, HEAD = 16 };
    struct { void *base; u64 size; } part = {&request, sizeof request};
    struct message message;
    i64 got;
    do {
        message = (struct message){0, 0, &part, 1, &rights, sizeof rights, 0};
        got = sys(SYS_recvmsg, (u64)from, (u64)&message, 0, 0);
    } while (got == -EINTR);
    *files = message.control_size > HEAD ? (rights.size - HEAD) / sizeof rights.fd[0] : 0;
    return got > 0 && (message.flags & (MSG_TRUNC | MSG_CTRUNC)) ? sizeof request + 1 : got; /* which check refuses */
}

static i64 check(u64 size, u64 files)
{
    if (size < 24 || request.maps > MAX_MAPS || size != 24 + request.maps * sizeof(struct map))
        return -EINVAL;
    for (u64 i = 0; i < request.maps; i++)
        if (request.map[i].file >= files || request.map[i].rights >= (WRITE | EXEC)) /* never both */
            return -EINVAL;
    return 0;
}

/* Makes this blank a worker, with what it was asked for in its memory. If something cannot be mapped it ends, and says by its status why. */
_Noreturn static void become(void)
{
    enum { READ = 1, PROT_WRITE = 2, PROT_EXEC = 4, SHARED = 1, NORESERVE = 0x4000, FIXED_NOREPLACE = 0x100000, EEXIST = 17 };
    static struct { uint16_t length; u64 filter; } program;
    u64 entry = request.entry, stack = request.stack & ~15ull;
    for (u64 i = 0; i < request.maps; i++) {
        const struct map *m = &request.map[i];
        u64 prot = READ | (m->rights & WRITE ? PROT_WRITE : 0) | (m->rights & EXEC ? PROT_EXEC : 0);
        i64 at = sys6(SYS_mmap, m->addr, m->size, prot, SHARED | NORESERVE | FIXED_NOREPLACE, (u64)rights.fd[m->file], m->offset);
        if (at != (i64)m->addr) /* a kernel before 4.17 takes the address for a wish */
            leave(at < 0 ? (u32)-at : EEXIST);
    }
    for (u64 i = 0, used = 3 + request.maps * sizeof(struct map) / 8; i < used; i++)
        ((volatile u64 *)&request)[i] = 0;
    program.length = (uint16_t)nursery_filter_length;
    program.filter = (u64)nursery_filter;
#if defined(__x86_64__)
    __asm__ volatile("mov %0, %%rsp\n\txor %%ebp, %%ebp\n\tcall *%1" : : "r"(stack), "r"(entry), "D"(&program), "S"(nursery_node) : "memory");
#elif defined(__aarch64__)
    register u64 x0 __asm__("x0") = (u64)&program;
    register u64 x1 __asm__("x1") = nursery_node;
    __asm__ volatile("mov sp, %0\n\tmov x29, xzr\n\tblr %1" : : "r"(stack), "r"(entry), "r"(x0), "r"(x1) : "x30", "memory");
#elif defined(__riscv)
    register u64 a0 __asm__("a0") = (u64)&program;
    register u64 a1 __asm__("a1") = nursery_node;
    __asm__ volatile("mv sp, %0\n\tmv s0, zero\n\tjalr %1" : : "r"(stack), "r"(entry), "r"(a0), "r"(a1) : "ra", "memory");
#endif
    leave(127);
}

/* Waits for what this blank is to be. */
_Noreturn static void blank(i32 from)
{
    u64 files;
    i64 size = take(from, &files);
    if (size <= 0)
        leave(size < 0);
    i64 error = check((u64)size, files);
    if (error < 0)
        leave((u32)-error);
    become();
}

/* Forks a blank, and gives the node its end of the blank's socket. */
static void make(void)
{
    enum { AF_UNIX = 1, SOCK_SEQPACKET = 5, SOL_SOCKET = 1, SCM_RIGHTS = 1, SIGCHLD = 17, CLONE_PARENT = 0x8000, MSG_NOSIGNAL = 0x4000 };
    i32 pair[2];
    i64 pid = sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, (u64)pair);
    if (pid == 0) {
        pid = sys(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0); /* the node waits for it, not this process */
        if (pid == 0) {
            sys(SYS_close, SOCKET, 0, 0, 0);
            sys(SYS_close, (u64)pair[0], 0, 0, 0); /* or it would not hear that the node has closed it */
            blank(pair[1]);
        }
        sys(SYS_close, (u64)pair[1], 0, 0, 0);
    } else {
        pair[0] = -1;
    }
    struct answer a = {pid > 0 ? (i32)pid : 0, pid < 0 ? (u32)-pid : 0};
    struct { void *base; u64 size; } part = {&a, sizeof a};
    struct { u64 size; i32 level, type; i32 fd, zero; } right = {20, SOL_SOCKET, SCM_RIGHTS, pair[0], 0};
    struct message message = {0, 0, &part, 1, pid > 0 ? &right : 0, pid > 0 ? sizeof right : 0, 0};
    sys(SYS_sendmsg, SOCKET, (u64)&message, MSG_NOSIGNAL, 0);
    if (pair[0] >= 0)
        sys(SYS_close, (u64)pair[0], 0, 0, 0);
}

/* Workers inherit that signals are ignored: the node decides. A fault's own is theirs to handle, and cannot be ignored. */
static void ignore_signals(void)
{
    enum { SA_RESTORER = 0x04000000, SIG_IGN = 1, SIGNALS = 64 };
    for (u64 sig = 1; sig <= SIGNALS; sig++) {
#if defined(__x86_64__)
        struct { u64 handler, flags, restorer, mask; } act = {SIG_IGN, SA_RESTORER, 0, 0};
#else
        struct { u64 handler, flags, mask; } act = {SIG_IGN, 0, 0};
#endif
        sys(SYS_rt_sigaction, sig, (u64)&act, 0, sizeof act.mask);
    }
}

/* The first thing that the process executes. */
#if defined(__x86_64__)
__attribute__((force_align_arg_pointer)) /* no call has put a return address on the stack */
#endif
_Noreturn void wherry_nursery(void)
{
    enum { PR_SET_PDEATHSIG = 1, PR_SET_NAME = 15, SIGKILL = 9 };
    sys(SYS_prctl, PR_SET_NAME, (u64) "wherry-nursery", 0, 0);
    sys(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
    if ((u64)sys(SYS_getppid, 0, 0, 0, 0) != nursery_node)
        leave(1); /* the node was gone before it could have killed this */
    ignore_signals();
    for (;;) {
        u8 byte;
        i64 got = sys6(SYS_recvfrom, SOCKET, (u64)&byte, 1, 0, 0, 0);
        if (got > 0)
            make();
        else if (got != -EINTR)
            leave(got < 0);
    }
}
