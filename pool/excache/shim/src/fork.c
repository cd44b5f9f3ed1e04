/* What a forked child touches before its handlers run. Its C library resets what it has allocated (files' locks, threads' keys, name services), and with
 * another malloc in the window that is remote: the child has no window yet, so such an access is a SIGSEGV. A handler that the child inherits makes the window then. */
#include "window.h"

struct action { u64 handler, flags, restorer, mask; };
enum { SIG_DFL = 0, SIG_IGN = 1, SIG_UNBLOCK = 1, SIGSEGV = 11 };
enum { SA_SIGINFO = 4, SA_RESTORER = 0x04000000, SA_ONSTACK = 0x08000000 };
#define SA_RESETHAND 0x80000000ul
#define SEGV_SET (1ul << (SIGSEGV - 1))

/* Of the fork under way; under the lock. */
static struct action before; /* what the program has for the signal */
static u64 mask_had;         /* the thread's mask */
static i64 parent;           /* the process that forks; 0: none */
static i64 refusal;          /* why there is no copy for the child */
static int made;             /* the child has its window */

#if defined(__x86_64__)
__asm__(".pushsection .text\n.hidden shim_sigreturn\nshim_sigreturn:\n\tmovl $15, %eax\n\tsyscall\n.popsection\n");
extern void shim_sigreturn(void) __attribute__((visibility("hidden")));
#define RESTORER ((u64)shim_sigreturn)
#define RESTORER_FLAG SA_RESTORER
#else
#define RESTORER 0 /* the kernel has one */
#define RESTORER_FLAG 0
#endif

static i64 action(const struct action *to, struct action *old) { return CALL4(SYS_rt_sigaction, SIGSEGV, to, old, sizeof before.mask); }
static void make(void)
{
    if (refusal)
        CALL1(SYS_exit_group, 125);
    made = 1;
    window_forked();
}

static void handle(int signal, void *info, void *context)
{
    if (!made && in_window(((void **)info)[2]) && CALL0(SYS_getpid) != parent) {
        make();
        return; /* and the access is tried again */
    }
    struct action dead = {.handler = SIG_DFL};
    if (before.handler <= SIG_IGN || before.flags & SA_RESETHAND)
        action(&dead, 0);
    if (before.handler > SIG_IGN)
        ((void (*)(int, void *, void *))before.handler)(signal, info, context);
}

/* The reasons that were said: bits by their number, the lowest for those that have no text. A child does not repeat them. */
static u64 said;

void fork_unmet(i64 err, const char *path)
{
    static const struct { i64 err; const char *why; } all[] = {
        {0, 0},
        {EMFILE, "too many open files (EMFILE): raise ulimit -n, or have the program close files before it forks"},
        {ENFILE, "the system has too many open files (ENFILE): raise fs.file-max"},
        {EACCES, "permission denied (EACCES): the program has changed its user; have it fork before it does, or start wherry run as that user"},
        {EPERM, "not permitted (EPERM): the program has given rights up, or a security policy forbids it; have it fork before"},
        {ENOSYS, "function not implemented (ENOSYS): the program has filtered its system calls (seccomp); have it fork before, or without the filter"},
        {ENOENT, "no such file (ENOENT): the program has changed its root folder, or the folder was removed; have it fork before, or keep the folder where the program sees it"},
        {ECONNREFUSED, "connection refused (ECONNREFUSED): wherry run has ended"},
        {ECONNRESET, "the daemon could not take one more process (ECONNRESET): it says why"},
    };
    u64 i = sizeof all / sizeof *all - 1;
    while (i && all[i].err != err)
        i--;
    if (said & 1ul << i)
        return;
    said |= 1ul << i;
    char number[24], *at = number + sizeof number - 1;
    *at = 0;
    do
        *--at = (char)('0' + err % 10);
    while (err /= 10);
    say("wherry run: fork fails with ENOMEM: the daemon of remote memory cannot be reached at ");
    say(path);
    say(": ");
    say(i ? all[i].why : "error number ");
    say(i ? "" : at);
    say("\n");
}

void fork_begins(void)
{
    count(&counters->forks, 1);
    refusal = window_fork();
    parent = CALL0(SYS_getpid);
    made = 0;
    action(0, &before);
    struct action ours = {(u64)handle, (before.flags & ~SA_RESETHAND) | SA_SIGINFO, before.restorer, before.mask};
    if (!(ours.flags & SA_RESTORER))
        ours.flags |= RESTORER_FLAG, ours.restorer = RESTORER;
    struct { u8 *at; int flags; u64 size; } stack = {0};
    CALL2(SYS_sigaltstack, 0, &stack);
    if (in_window(stack.at)) /* which the child does not have */
        ours.flags &= ~(u64)SA_ONSTACK;
    const u64 segv = SEGV_SET;
    mask_had = lock_mask();
    CALL4(SYS_rt_sigprocmask, SIG_UNBLOCK, &segv, 0, sizeof segv); /* until the mask is restored */
    action(&ours, 0);
}

/* The program's own again, if it has not set another one meanwhile. */
static void settle(void)
{
    struct action now;
    action(0, &now);
    if (now.handler == (u64)handle)
        action(&before, 0);
}

i64 fork_ends(void)
{
    settle();
    i64 refused = window_parted(!refusal) || refusal;
    if (refused)
        count(&counters->forks_refused, 1);
    return refused;
}

void fork_in_child(void)
{
    if (!made)
        make();
    settle();
    lock_restore(mask_had);
}
