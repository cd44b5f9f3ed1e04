/* What runs in a worker process, besides a function: set-up and lock-down, the loop that takes runs from the node,
 * the host calls, and what reports faults.  It has no C library and no Go runtime under it.  The node puts
 * it at its address as it does functions (inject/elf); page is shared with the node, and layout.go has the same
 * offsets.
 *
 * Nothing here guards against the function: it can write to all of page and to this code's stack.  What it could
 * gain is bounded by what is mapped and by the system-call filter; the node checks all that it reads. */
#include "sys.h"

enum { OK = 0, ERR_ARGUMENT = -1, ERR_DONE = -8, ERR_NO_WINDOW = -11, ERR_FAR = -14 };
enum { THEIRS = 0, OURS = 1 };                      /* turn */
enum { DONE = 1, CALLS = 2, FAULT = 3, READY = 4, FAILED = 5 }; /* wants */
enum { NO_MAIL = 0, MAIL_REPLY = 1, MAIL_FORWARD = 2, MAIL_BYTES = 64 };
enum { STACK_BEFORE_PAYLOAD = 0x10000000, STACK_BYTES = 1 << 20 }; /* as layout.go has it */

struct window {
    u64 addr, size;
    u32 flags, zero;
};

/* What the node has written before there is a worker; the worker has it read-only. */
struct context {
    u64 entry;                       /* i32 (*)(const void *payload, u32 size) */
    u64 data, data_init, data_bytes; /* statics, what they begin as, and for how many bytes */
    u64 zero_bytes;                  /* of statics that begin as zeros, after them; 0: the node sees to it */
    u64 payload;
    u32 windows;
    u32 near; /* there may be other elements whose windows get_near reads: written before a run */
    struct window window[240];
    u64 ranges; /* elements whose rows are known, all or none: written before the first run */
    struct { u64 first, count; } range[4096];
};

/* Written by both.  The word turn says whose turn it is; who waits for it sleeps on it. */
struct page {
    u32 turn;
    u32 wants;  /* what the worker stopped for */
    u32 call;   /* CALLS: its number in the ABI's table */
    i32 status; /* DONE: what the function returned; CALLS: the call's status, from the node */
    u64 arg[8];
    u64 result[2]; /* from the node */
    /* A short reply or forward, until the next call or the run's end. */
    u32 mail, mail_element, mail_bytes, replied;
    u8 mail_data[MAIL_BYTES];
    /* FAULT and FAILED. */
    u32 signal, code;
    u64 addr, pc, sp;
    /* From the node. */
    const struct context *context;
    u32 payload_bytes, elements, self;
    u32 parked; /* it sleeps, and is to be woken */
    /* Where the function runs in the node's own process (internal/stackswitch): what gives the node its turn, and what that is told; else 0. */
    u64 yield, frame;
};
_Static_assert(sizeof(struct window) == 24, "layout.go");
_Static_assert(__builtin_offsetof(struct context, near) == 52, "layout.go");
_Static_assert(__builtin_offsetof(struct context, ranges) == 5816, "layout.go");
_Static_assert(__builtin_offsetof(struct page, arg) == 16, "layout.go");
_Static_assert(__builtin_offsetof(struct page, mail) == 96, "layout.go");
_Static_assert(__builtin_offsetof(struct page, mail_data) == 112, "layout.go");
_Static_assert(__builtin_offsetof(struct page, signal) == 176, "layout.go");
_Static_assert(__builtin_offsetof(struct page, context) == 208, "layout.go");
_Static_assert(__builtin_offsetof(struct page, yield) == 232, "layout.go");
_Static_assert(sizeof(struct page) == 248, "layout.go");

/* The first thing in the data segment, which is shared with the node. */
__attribute__((section(".data.page"), aligned(4096))) struct page page = {.turn = OURS};

/* The fault handler's stack, for a function that has used up its own. */
static u8 fault_stack[16384] __attribute__((aligned(16)));

#if defined(__x86_64__)
enum { PC_AT = 168, SP_AT = 160 }; /* in ucontext_t */
#elif defined(__aarch64__)
enum { PC_AT = 440, SP_AT = 432 };
#elif defined(__riscv)
enum { PC_AT = 176, SP_AT = 192 };
#endif

enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1 }; /* not the private ones: the node waits in another process */

/* Gives the node its turn. */
static void say(u32 wants)
{
    page.wants = wants;
    __atomic_store_n(&page.turn, THEIRS, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&page.parked, __ATOMIC_SEQ_CST))
        sys(SYS_futex, (u64)&page.turn, FUTEX_WAKE, 1, 0);
}

/* Gives the node its turn and waits for the next of ours. */
static void hand_over(u32 wants)
{
    if (page.yield) {
        page.wants = wants;
        ((void (*)(u64))page.yield)(page.frame);
        return;
    }
    say(wants);
    while (__atomic_load_n(&page.turn, __ATOMIC_ACQUIRE) != OURS)
        sys(SYS_futex, (u64)&page.turn, FUTEX_WAIT, THEIRS, 0);
}

/* ---- Host calls: those that the node answers, made from the ABI's table. ---- */

typedef struct { u64 first, count; } wherry_rows_range_t;

static i32 ask(u32 call)
{
    page.call = call;
    hand_over(CALLS);
    return page.status;
}

#include "calls.h"

i32 wherry_self(void) { return (i32)page.self; }
i32 wherry_elements(void) { return (i32)page.elements; }

i32 wherry_window(u32 index, struct { u8 *addr; u32 flags; u64 size; } *out)
{
    const struct context *c = page.context;
    if (index >= c->windows || c->window[index].size == 0)
        return ERR_NO_WINDOW;
    out->addr = (u8 *)c->window[index].addr;
    out->flags = c->window[index].flags;
    out->size = c->window[index].size;
    return OK;
}

/* All of a window is mapped here. */
i32 wherry_window_at(u32 index, u64 offset, struct { u8 *addr; u32 flags; u64 first, size, total; } *out)
{
    const struct context *c = page.context;
    if (index >= c->windows || c->window[index].size == 0)
        return ERR_NO_WINDOW;
    if (offset >= c->window[index].size)
        return ERR_ARGUMENT;
    out->addr = (u8 *)c->window[index].addr;
    out->flags = c->window[index].flags;
    out->first = 0;
    out->size = out->total = c->window[index].size;
    return OK;
}

i32 wherry_payload(struct { u8 *addr; u32 size; } *out)
{
    out->addr = (u8 *)page.context->payload;
    out->size = page.payload_bytes;
    return OK;
}

/* Which rows of dataset 0 are where never changes for a worker.  What is not known here, or is wrong, the node answers. */
i32 wherry_owner_2(u32 dataset, u64 row, u64 *local)
{
    const struct context *c = page.context;
    u64 low = 0, high = c->ranges; /* the last one that begins at row or before it is in [low, high) */
    while (high - low > 1) {
        u64 middle = (low + high) / 2;
        if (c->range[middle].first <= row)
            low = middle;
        else
            high = middle;
    }
    if (dataset != 0 || low >= c->ranges || row < c->range[low].first || row - c->range[low].first >= c->range[low].count)
        return call_owner_2(dataset, row, local);
    *local = row - c->range[low].first;
    return (i32)low;
}

i64 wherry_row_2(u32 dataset, i32 element, u64 local)
{
    const struct context *c = page.context;
    if (dataset != 0 || (u32)element >= c->ranges || local >= c->range[element].count)
        return call_row_2(dataset, element, local);
    return (i64)(c->range[element].first + local);
}

i32 wherry_shard_rows_2(u32 dataset, i32 element, wherry_rows_range_t *range)
{
    const struct context *c = page.context;
    if (dataset != 0 || (u32)element >= c->ranges)
        return call_shard_rows_2(dataset, element, range);
    *range = (wherry_rows_range_t){c->range[element].first, c->range[element].count};
    return OK;
}

static i32 within(u64 at, u64 bytes, u64 from, u64 size) { return at >= from && at - from <= size && bytes <= size - (at - from); }

/* Whether n bytes surely are the function's to write: on its stack, in its statics or its payload. What lies elsewhere the node judges. */
static i32 writable(const void *data, u32 n)
{
    const struct context *c = page.context;
    u64 at = (u64)data;
    return within(at, n, c->payload - STACK_BEFORE_PAYLOAD, STACK_BYTES) || within(at, n, c->data, c->data_bytes + c->zero_bytes) ||
           within(at, n, c->payload, page.payload_bytes);
}

/* Nobody is asked where the answer is known, that another element is far: on the way of every hop that would cost a hand-over. */
i32 wherry_get_near(i32 element, u32 window, u64 offset, void *data, u32 size)
{
    if (!page.context->near && (u32)element < page.elements && (u32)element != page.self && writable(data, size))
        return ERR_FAR;
    return call_get_near(element, window, offset, data, size);
}

u64 wherry_now(void)
{
    struct { i64 sec, nsec; } t;
    sys(SYS_clock_gettime, 0, (u64)&t, 0, 0);
    return (u64)t.sec * 1000000000u + (u64)t.nsec;
}

/* A short reply or forward that nothing was sent before is left for the node to find at the run's end or the next call: that
 * saves the way there and back. */
static i32 mail(u32 kind, u32 element, const u8 *data, u32 size)
{
    if (page.mail != NO_MAIL || page.replied)
        return ERR_DONE;
    for (u32 i = 0; i < size; i++)
        page.mail_data[i] = data[i];
    page.mail_element = element;
    page.mail_bytes = size;
    page.mail = kind;
    page.replied = 1;
    return OK;
}

i32 wherry_reply(const void *data, u32 size)
{
    if (size <= MAIL_BYTES)
        return mail(MAIL_REPLY, 0, data, size);
    i32 st = call_reply(data, size);
    page.replied |= st == OK;
    return st;
}

i32 wherry_forward_2(u32 function, i32 element, const void *data, u32 size)
{
    if (function == 0 && size <= MAIL_BYTES)
        return mail(MAIL_FORWARD, (u32)element, data, size);
    i32 st = call_forward_2(function, element, data, size);
    page.replied |= st == OK;
    return st;
}

/* As ABI 1 has them. */
i32 wherry_owner(u64 row, u64 *local) { return wherry_owner_2(0, row, local); }
i64 wherry_row(i32 element, u64 local) { return wherry_row_2(0, element, local); }
i32 wherry_shard_rows(i32 element, wherry_rows_range_t *range) { return wherry_shard_rows_2(0, element, range); }
i32 wherry_forward(i32 element, const void *data, u32 size) { return wherry_forward_2(0, element, data, size); }
i32 wherry_fork(i32 element, const void *data, u32 size) { return wherry_fork_2(0, element, data, size); }

/* ---- Faults. ---- */

enum { SIGILL = 4, SIGTRAP = 5, SIGBUS = 7, SIGFPE = 8, SIGKILL = 9, SIGSEGV = 11, SIGSYS = 31 };

static void fault(i32 sig, u8 *info, u8 *context)
{
    page.signal = (u32)sig;
    page.code = sig == SIGSYS ? *(u32 *)(info + 24) : *(u32 *)(info + 8); /* the system call, or si_code */
    page.addr = *(u64 *)(info + 16);
    page.pc = *(u64 *)(context + PC_AT);
    page.sp = *(u64 *)(context + SP_AT);
    say(FAULT);
    leave(1);
}

/* All other signals are ignored (nursery.c): the node decides. */
static void take_signals(void)
{
    enum { SA_SIGINFO = 4, SA_ONSTACK = 0x08000000, SA_RESTORER = 0x04000000 };
    static const u8 faults[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
    struct { u64 sp; i32 flags; u32 zero; u64 size; } stack = {(u64)fault_stack, 0, 0, sizeof fault_stack};
    sys(SYS_sigaltstack, (u64)&stack, 0, 0, 0);
#if defined(__x86_64__)
    /* A restorer has to be there; fault never returns. */
    struct { u64 handler, flags, restorer, mask; } act = {(u64)fault, SA_RESTORER | SA_SIGINFO | SA_ONSTACK, (u64)fault, 0};
#else
    struct { u64 handler, flags, mask; } act = {(u64)fault, SA_SIGINFO | SA_ONSTACK, 0};
#endif
    for (u32 i = 0; i < sizeof faults; i++)
        sys(SYS_rt_sigaction, faults[i], (u64)&act, 0, sizeof act.mask);
}

/* ---- Start, and the loop. ---- */

static void need(i64 result, u32 step)
{
    if (result >= 0)
        return;
    page.signal = step;
    page.addr = (u64)-result;
    say(FAILED);
    leave(1);
}

static void reset_statics(const struct context *c)
{
    u64 *to = (u64 *)c->data;
    const u64 *from = (const u64 *)c->data_init;
    for (u64 i = 0; i < c->data_bytes / 8; i++)
        to[i] = from[i];
    to += c->data_bytes / 8;
    for (u64 i = 0; i < c->zero_bytes / 8; i++)
        to[i] = 0;
}

static void lock_down(const void *filter, u64 parent)
{
    enum { PR_SET_PDEATHSIG = 1, PR_SET_DUMPABLE = 4, PR_SET_NAME = 15, SECCOMP_SET_MODE_FILTER = 1 };
    take_signals();
    need(sys(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0), 1);
    if ((u64)sys(SYS_getppid, 0, 0, 0, 0) != parent)
        leave(1); /* the node was gone before it could have killed this */
    sys(SYS_prctl, PR_SET_NAME, (u64) "wherry-worker", 0, 0);
    need(sys(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0), 2);
    need(sys(SYS_close_range, 0, ~0u, 0, 0), 3);
    need(sys(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (u64)filter, 0), 4);
}

/* filter is a struct sock_fprog, parent the node's process; without a filter this is the node's process. */
_Noreturn void wherry_worker(const void *filter, u64 parent)
{
    if (filter)
        lock_down(filter, parent);
    for (u32 wants = READY;; wants = DONE) {
        hand_over(wants);
        const struct context *c = page.context;
        page.mail = NO_MAIL;
        page.replied = 0;
        reset_statics(c);
        page.status = ((i32(*)(const void *, u32))c->entry)((const void *)c->payload, page.payload_bytes);
    }
}
