/* The lock, and how long its holder waits. A handler that maps memory waits for the lock: if it had interrupted the holder it would wait for itself. So the holder
 * has signals blocked, but for those that its own mistakes raise. A thread that waits for the lock has not, as it holds nothing. */
#include "window.h"

enum { SIG_BLOCK = 0, SIG_UNBLOCK = 1, SIG_SETMASK = 2, SIGILL = 4, SIGTRAP = 5, SIGBUS = 7, SIGFPE = 8, SIGSEGV = 11, SIGSYS = 31, SIGNALS = 64 };
#define BIT(signal) (1ul << ((signal) - 1))
static const u64 blocked = ~(BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGSEGV) | BIT(SIGSYS));

static u32 locked;   /* 0: free, 1: held, 2: held, and others may wait */
static u64 mask_had; /* the signals that the holder's thread has blocked by itself */

static void set_mask(int how, u64 set, u64 *old) { CALL4(SYS_rt_sigprocmask, how, &set, old, sizeof set); }

/* SIG_BLOCK and not SIG_SETMASK: what the program has blocked of its own mistakes stays so. */
static u64 block(void)
{
    u64 had = 0;
    set_mask(SIG_BLOCK, blocked, &had);
    return had;
}

void lock(void)
{
    u64 had = block();
    u32 free = 0;
    if (!__atomic_compare_exchange_n(&locked, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        while (__atomic_exchange_n(&locked, 2, __ATOMIC_ACQUIRE)) {
            set_mask(SIG_SETMASK, had, 0);
            CALL4(SYS_futex, &locked, FUTEX_WAIT_PRIVATE, 2, 0);
            had = block();
        }
    mask_had = had;
}

void unlock(void)
{
    u64 had = mask_had;
    if (__atomic_exchange_n(&locked, 0, __ATOMIC_RELEASE) == 2)
        CALL3(SYS_futex, &locked, FUTEX_WAKE_PRIVATE, 1);
    set_mask(SIG_SETMASK, had, 0);
}

u64 lock_mask(void) { return mask_had; }

void lock_restore(u64 had) { set_mask(SIG_SETMASK, had, 0); }

void lock_forked(void) { __atomic_store_n(&locked, 0, __ATOMIC_RELEASE); }

void lock_waits(void)
{
    struct { u64 handler, flags, restorer, mask; } act;
    u64 pending = 0, plain = 0;
    CALL2(SYS_rt_sigpending, &pending, sizeof pending);
    pending &= blocked & ~mask_had;
    for (int signal = 1; pending && signal <= SIGNALS; signal++)
        if (pending & BIT(signal) && !CALL4(SYS_rt_sigaction, signal, 0, &act, sizeof act.mask) && !act.handler)
            plain |= BIT(signal);
    if (!plain)
        return;
    set_mask(SIG_UNBLOCK, plain, 0);
    block();
}
