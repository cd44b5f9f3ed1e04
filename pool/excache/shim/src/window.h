/* The window: which of its addresses are in use, and how the daemon is told. All functions are called with the lock held, where nothing else is said. */
#pragma once
#include "kernel.h"

#define PAGE 4096ul
#define EXPORT __attribute__((visibility("default")))

extern int window_on;   /* the daemon serves this process */
extern u8 *window_base;
extern u64 window_size;
extern u64 window_least; /* smaller allocations are not the window's */

/* Counters that the daemon reads; it has them in this order. */
struct counters { u64 mappings, bytes, direct, uring, refused, anonymous, forks, forks_refused; };
extern struct counters *counters;
static inline void count(u64 *c, u64 n) { __atomic_fetch_add(c, n, __ATOMIC_RELAXED); }

static inline int in_window(const void *p) { return window_on && (u8 *)p >= window_base && (u8 *)p < window_base + window_size; }
static inline u64 whole_pages(u64 n) { return (n + PAGE - 1) & ~(PAGE - 1); }

/* Its holder has signals blocked (lock.c). */
void lock(void);
void unlock(void);
/* The holder's own mask, as unlock restores it; and restoring it in a forked child, where the lock is made free without. */
u64 lock_mask(void);
void lock_restore(u64 had);
void lock_forked(void);
/* The holder waits for the daemon: signals that have come meanwhile and have no handler do what they do without one. */
void lock_waits(void);

/* Takes n bytes, whole pages, at a multiple of align; 0 if there is no room. */
enum { CLEARED = 1, OBJECT = 2 }; /* it must read as zeros; it is an allocation, for free, and no mapping */
u8 *window_take(u64 n, u64 align, int how);
/* Gives addresses back, whole pages, in use or not; what they held is dead. */
void window_give(u8 *p, u64 n);
/* Makes n bytes at p longer where they are; 0 if that cannot be. */
int window_extend(u8 *p, u64 n, u64 more);
/* The bytes of the allocation that begins at p, 0 if none does. Mappings are no allocations: what lies in them may be another malloc's. */
u64 window_length(u8 *p);
/* Does what madvise does: whole pages read as zeros where that is the advice. */
i64 window_advise(u8 *p, u64 n, int advice);
/* Says that the program has changed what these pages allow: giving them back mends that. */
void window_altered(u8 *p, u64 n);
/* Makes room for window_claim, which cannot fail then; 0 if there is none. The pages stay as they are. */
int window_prepare(u8 *p, u64 n);
/* Marks pages as in use that something was put at by MAP_FIXED: zeros, or foreign, what the caller has mapped there already. An allocation that they lie in
 * stays one, to its end. */
void window_claim(u8 *p, u64 n, int foreign);
/* Whether a descriptor is the window's. Closing it would end the session while the memory is in use. */
int window_owns(int fd);
/* Moves it elsewhere if it is, as the program takes its number; 0 if there is no other. Without the lock, as the others of these three. */
int window_vacate(int fd);
int window_next(u32 from);
/* Counts what the process has of memory besides. Without the lock. */
void window_besides(void);
/* Connects to the daemon. */
void window_open(void);
/* Has the daemon make ready to copy the window for a child; other threads' writes to it wait. window_forked makes the copy the child's own, and ends a child that
 * there is no copy for. window_parted lets the parent's threads go on and waits for the copy, if there is to be one. The lock is held from the first to the
 * second, or to the third. 0, or an error that the child would have had. */
i64 window_fork(void);
void window_forked(void);
i64 window_parted(int forked);

/* What the handlers of a fork do (fork.c), with these three and with the lock held from the first to the second or third. Nonzero: the child got no copy. */
void fork_begins(void);
i64 fork_ends(void);
/* Says, once for each reason, that the daemon at path cannot be told of a fork. */
void fork_unmet(i64 err, const char *path);
void fork_in_child(void);

/* O_DIRECT lets the device write to a page after the cache took it away: the bytes would be lost (direct.c). Without the lock. */
/* Flags to open a file with, and flags for one that is open, without it. */
int direct_open(int flags);
u64 direct_set(int fd, u64 flags);
/* Takes it off a descriptor that the process has got; all that came with a message; all that it was started with. */
void direct_off(int fd);
void direct_received(const struct msghdr *m);
void direct_inherited(void);
/* The same for a system call by its number, that the program has made; its arguments. */
void direct_called(i64 n, const i64 a[6], i64 result);

/* Shares: memory that others have too, which programs open by name and map (share.c). Without the lock. */
/* Opens one as a file that can only be mapped; -ENOENT: it is none. */
i64 share_open(const char *path, int flags);
/* Maps one; -EBADF: the descriptor is none's. */
i64 share_map(void *p, u64 n, int prot, int flags, int fd, i64 off);
/* Unmaps addresses, of shares or not. */
i64 share_unmap(void *p, u64 n);
/* Maps something else over shares. */
i64 share_over(void *p, u64 n, int prot, int flags, int fd, i64 off);
/* Whether there is one in n bytes at p, and whether one that is only to be read. */
enum { SHARE_READ = 1, SHARE_WRITE = 2 };
int share_at(const void *p, u64 n);
/* Has what was changed there saved; an error. */
i64 share_sync(const void *p, u64 n);
/* Maps them again in a forked child. */
void share_forked(void);

/* As session.go has them. */
enum { CALL_TAKE = 1, CALL_FREE = 2, CALL_FORK = 3, CALL_OPEN = 4, CALL_VIEW = 5, CALL_UNVIEW = 6, CALL_SYNC = 7, CALL_PARTED = 8, CALL_MOVE = 9, MAX_PAIRS = 256 };
/* Asks the daemon; the lock is held. The value and the descriptor of the answer go where to is not 0. */
struct reply { u64 value; int fd; };
u64 ask(u64 call, u64 pairs, u64 argument, const u64 *list, struct reply *to);
/* Has the daemon hear of faults in n bytes at p, and no forked child and no core dump have them. They are mapped without access, so that no page is
 * there before: with mlockall the kernel reads in at once what can be accessed. */
i64 watch_part(u64 at, u64 n);
/* Writes to standard error. */
void say(const char *what);
/* The daemon is gone, or memory is lost: the program must not go on. */
void __attribute__((noreturn)) fail(const char *why);
