/* A program without a C library that has a function's object: standard input is the payload, what the function replies goes to standard output. */
#include <stdint.h>

int32_t wherry_main(const void *, uint32_t);
int32_t wherry_reply(const void *, uint32_t), wherry_reply_part(const void *, uint32_t);

static long sys(long number, long a, long b, long c)
{
#if defined __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
    register long a7 __asm__("a7") = number, a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
    return a0;
#endif
}

#if defined __x86_64__
enum { READ = 0, WRITE = 1, EXIT = 60 };
#define ALIGNED __attribute__((force_align_arg_pointer))
#else
enum { READ = 63, WRITE = 64, EXIT = 93 };
#define ALIGNED
#endif

int32_t wherry_reply(const void *data, uint32_t size)
{
    const char *p = data;
    for (long n; size > 0; p += n, size -= (uint32_t)n)
        if ((n = sys(WRITE, 1, (long)p, size)) <= 0)
            sys(EXIT, 100, 0, 0);
    return 0;
}

int32_t wherry_reply_part(const void *data, uint32_t size) { return wherry_reply(data, size); }

ALIGNED void _start(void)
{
    static uint64_t payload[1 << 10];
    uint32_t size = 0;
    for (long n; (n = sys(READ, 0, (long)payload + size, sizeof payload - size)) > 0;)
        size += (uint32_t)n;
    sys(EXIT, wherry_main(payload, size), 0, 0);
}
