/* What makes workers: a process that has nothing but this, so that a fork costs little and no worker finds anything in it.  It
 * answers the node's requests, one after the other, until the node has closed its end.  nursery.go writes requests, and
 * what stands under Settings. */
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

struct answer { i32 pid; u32 error; };

/* Settings. */
__attribute__((section(".data.settings"))) u64 nursery_node = 1;                 /* the process that asks */
__attribute__((section(".data.settings"))) u64 nursery_filter_length = 1;        /* what workers install, in instructions */
__attribute__((section(".data.settings"))) u64 nursery_filter[512] = {1};        /* struct sock_filter */

static struct request request;
static struct { u64 size; i32 level, type; i32 fd[MAX_FILES + 1]; } rights __attribute__((aligned(8)));

enum { EINTR = 4, EINVAL = 22 };

/* Takes a request, and says how many descriptors came with it; 0 bytes: the node has gone; less: nothing can be heard any more. */
static i64 take(u64 *files)
{
    enum { MSG_TRUNC = 0x20, MSG_CTRUNC = 8, HEAD = 16 };
    struct { void *base; u64 size; } part = {&request, sizeof request};
    struct { void *name; u64 name_size; void *parts; u64 count; void *control; u64 control_size; u32 flags; } message;
    i64 got;
    do {
        message.name = 0;
        message.name_size = 0;
        message.parts = &part;
        message.count = 1;
        message.control = &rights;
        message.control_size = sizeof rights;
        message.flags = 0;
        got = sys(SYS_recvmsg, SOCKET, (u64)&message, 0, 0);
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

/* Makes this child a worker: with what it was asked for in its memory, and nothing of other requests. If something cannot be mapped it ends, and says
 * by its status why. */
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

/* The first thing that the process executes. */
#if defined(__x86_64__)
__attribute__((force_align_arg_pointer)) /* no call has put a return address on the stack */
#endif
_Noreturn void wherry_nursery(void)
{
    enum { PR_SET_PDEATHSIG = 1, PR_SET_NAME = 15, SIGKILL = 9, SIGCHLD = 17, CLONE_PARENT = 0x8000, MSG_NOSIGNAL = 0x4000 };
    sys(SYS_prctl, PR_SET_NAME, (u64) "wherry-nursery", 0, 0);
    sys(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
    if ((u64)sys(SYS_getppid, 0, 0, 0, 0) != nursery_node)
        leave(1); /* the node was gone before it could have killed this */
    for (;;) {
        u64 files;
        i64 size = take(&files);
        if (size <= 0)
            leave(size < 0);
        i64 pid = check((u64)size, files);
        if (pid == 0) {
            pid = sys(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0); /* the node waits for it, not this process */
            if (pid == 0)
                become();
        }
        for (u64 i = 0; i < files; i++)
            sys(SYS_close, (u64)rights.fd[i], 0, 0, 0);
        struct answer a = {pid > 0 ? (i32)pid : 0, pid < 0 ? (u32)-pid : 0};
        sys6(SYS_sendto, SOCKET, (u64)&a, sizeof a, MSG_NOSIGNAL, 0, 0);
    }
}
