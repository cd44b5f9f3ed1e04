/* System calls without a C library: the shim is loaded before and beside whatever library the program has. */
#pragma once
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

#if defined(__x86_64__)
enum { SYS_read = 0, SYS_write = 1, SYS_close = 3, SYS_fstat = 5, SYS_msync = 26, SYS_mmap = 9, SYS_mprotect = 10, SYS_munmap = 11, SYS_rt_sigaction = 13, SYS_rt_sigprocmask = 14, SYS_rt_sigpending = 127, SYS_sigaltstack = 131, SYS_ioctl = 16, SYS_mremap = 25, SYS_madvise = 28,
       SYS_getpid = 39, SYS_socket = 41, SYS_connect = 42, SYS_sendmsg = 46, SYS_recvmsg = 47, SYS_fcntl = 72, SYS_dup3 = 292, SYS_close_range = 436, SYS_gettid = 186, SYS_wait4 = 61, SYS_futex = 202,
       SYS_exit_group = 231, SYS_open = 2, SYS_openat = 257, SYS_openat2 = 437, SYS_open_by_handle_at = 304, SYS_pidfd_getfd = 438, SYS_recvmmsg = 299,
       SYS_getdents64 = 217, SYS_readlinkat = 267, SYS_dup2 = 33, SYS_setsockopt = 54, SYS_pkey_mprotect = 329, SYS_userfaultfd = 323, SYS_io_uring_setup = 425 };
static inline i64 call6(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f)
{
    register i64 r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    i64 r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return r;
}
#elif defined(__aarch64__)
enum { SYS_read = 63, SYS_write = 64, SYS_close = 57, SYS_fstat = 80, SYS_msync = 227, SYS_mmap = 222, SYS_mprotect = 226, SYS_munmap = 215, SYS_rt_sigaction = 134, SYS_rt_sigprocmask = 135, SYS_rt_sigpending = 136, SYS_sigaltstack = 132, SYS_ioctl = 29, SYS_mremap = 216, SYS_madvise = 233,
       SYS_getpid = 172, SYS_socket = 198, SYS_connect = 203, SYS_sendmsg = 211, SYS_recvmsg = 212, SYS_fcntl = 25, SYS_dup3 = 24, SYS_close_range = 436, SYS_gettid = 178, SYS_wait4 = 260, SYS_futex = 98,
       SYS_exit_group = 94, SYS_openat = 56, SYS_openat2 = 437, SYS_open_by_handle_at = 265, SYS_pidfd_getfd = 438, SYS_recvmmsg = 243,
       SYS_getdents64 = 61, SYS_readlinkat = 78, SYS_setsockopt = 208, SYS_pkey_mprotect = 288, SYS_userfaultfd = 282, SYS_io_uring_setup = 425 };
static inline i64 call6(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f)
{
    register i64 x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e,
        x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "this processor has no shim"
#endif

#define CALL0(n) call6(n, 0, 0, 0, 0, 0, 0)
#define CALL1(n, a) call6(n, (i64)(a), 0, 0, 0, 0, 0)
#define CALL2(n, a, b) call6(n, (i64)(a), (i64)(b), 0, 0, 0, 0)
#define CALL3(n, a, b, c) call6(n, (i64)(a), (i64)(b), (i64)(c), 0, 0, 0)
#define CALL4(n, a, b, c, d) call6(n, (i64)(a), (i64)(b), (i64)(c), (i64)(d), 0, 0)
#define CALL5(n, a, b, c, d, e) call6(n, (i64)(a), (i64)(b), (i64)(c), (i64)(d), (i64)(e), 0)
#define CALL6(n, a, b, c, d, e, f) call6(n, (i64)(a), (i64)(b), (i64)(c), (i64)(d), (i64)(e), (i64)(f))

enum { EPERM = 1, ENOENT = 2, EINTR = 4, EBADF = 9, EAGAIN = 11, ENOMEM = 12, EACCES = 13, EINVAL = 22, ENFILE = 23, EMFILE = 24, ENAMETOOLONG = 36, ENOSYS = 38, ECONNRESET = 104,
       ECONNREFUSED = 111 };
enum { PROT_READ = 1, PROT_WRITE = 2, PROT_EXEC = 4 };
enum { MAP_SHARED = 1, MAP_PRIVATE = 2, MAP_FIXED = 0x10, MAP_ANONYMOUS = 0x20, MAP_GROWSDOWN = 0x100, MAP_NORESERVE = 0x4000, MAP_STACK = 0x20000,
       MAP_HUGETLB = 0x40000, MAP_FIXED_NOREPLACE = 0x100000 };
enum { MREMAP_MAYMOVE = 1, MREMAP_FIXED = 2 };
enum { MS_ASYNC = 1 };
enum { MADV_DONTNEED = 4, MADV_FREE = 8, MADV_REMOVE = 9, MADV_DONTFORK = 10, MADV_DONTDUMP = 16, MADV_WIPEONFORK = 18, MADV_DONTNEED_LOCKED = 24 };
#if defined(__x86_64__)
enum { O_DIRECT = 040000, MAP_32BIT = 0x40 };
#else
enum { O_DIRECT = 0200000, MAP_32BIT = 0 }; /* there is none */
#endif
enum { O_RDONLY = 0, O_RDWR = 2, O_ACCMODE = 3, O_CREAT = 0100, O_NONBLOCK = 04000, O_ASYNC = 020000, O_CLOEXEC = 02000000, O_TMPFILE = 020000000, AT_FDCWD = -100 };
enum { F_SETFD = 2, F_GETFL = 3, F_SETFL = 4, F_SETOWN = 8, F_SETSIG = 10, FD_CLOEXEC = 1, F_DUPFD_CLOEXEC = 1030, F_GETPIPE_SZ = 1032 };
enum { AF_UNIX = 1, SOCK_STREAM = 1, SOCK_CLOEXEC = 02000000, SOL_SOCKET = 1, SO_RCVTIMEO = 20, SCM_RIGHTS = 1, MSG_NOSIGNAL = 0x4000, MSG_CMSG_CLOEXEC = 0x40000000 };
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129, SIGKILL = 9 };

struct iovec { void *base; u64 len; };
struct msghdr { void *name; u32 namelen; struct iovec *iov; u64 iovlen; void *control; u64 controllen; int flags; };
struct rights { u64 len; int level, type, fds[4]; };
struct mmsghdr { struct msghdr head; u32 len; };
