// A program that waits for remote memory in one thread, and goes on in another; argv[1] says what it does.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define PAGE 4096ul

static char *map(size_t n) { return mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void say(const char *s) { printf("%s\n", s); fflush(stdout); }
static void hear(void) { if (getchar() == EOF) exit(2); }
static void *change(void *p)
{
    char c;
    if (read(0, &c, 1) != 1)
        _exit(3);
    for (size_t i = 0; i < MIB; i += PAGE)
        ((char *)p)[i]++;
    if (write(1, "went on\n", 8) != 8)
        _exit(3);
    return 0;
}
static void *touch(void *p) { return (void *)(size_t)*(volatile char *)p; }

int main(int argc, char **argv)
{
    size_t n = strcmp(argv[1], "recall") ? 8 * MIB : 5 * MIB / 2;
    char *p = map(n), *fresh = map(MIB);
    pthread_t t;
    void *got = 0;
    for (size_t i = 0; i < n; i += PAGE)
        p[i] = (char)(i / PAGE % 100 + 1);
    if (!strcmp(argv[1], "discard")) {
        munmap(p, 6 * MIB); // 2 MiB of the end are local
        p = mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        free(malloc(300000)); // whatever is freed is told sooner or later
        say("freed");
        hear();
        char *q = map(6 * MIB);
        for (size_t round = 0; round < 3; round++) {
            for (size_t i = 0; i < 6 * MIB; i += PAGE)
                q[i] = (char)(q[i] + i / PAGE % 50 + 1);
        }
        for (size_t i = 0; i < 6 * MIB; i += PAGE)
            if (q[i] != (char)(3 * (i / PAGE % 50 + 1)))
                return 1;
        say("ok");
        hear();
        return 0;
    }
    if (!strcmp(argv[1], "takes")) {
        say("written");
        hear();
        map(32 * MIB);
        say("mapped");
        return 0;
    }
    if (!strcmp(argv[1], "forks")) {
        pthread_create(&t, 0, change, p);
        say("written");
        pid_t child = fork();
        for (size_t i = 0; child == 0 && i < n; i += PAGE)
            if (p[i] != (char)(i / PAGE % 100 + 1))
                _exit(1);
        if (child == 0)
            _exit(0);
        int status = 1;
        pthread_join(t, &got);
        for (size_t i = 0; i < n; i += PAGE)
            if (p[i] != (char)(i / PAGE % 100 + 1 + (i < MIB)))
                return 1;
        say(waitpid(child, &status, 0) == child && status == 0 ? "ok" : "the child saw other bytes");
        return 0;
    }
    say("written");
    hear();
    if (!strcmp(argv[1], "recall")) {
        for (size_t i = 0; i < 64 * PAGE; i += PAGE) // what left first
            if (p[i] != (char)(i / PAGE % 100 + 1))
                return 1;
        say("ok");
        hear();
        return 0;
    }
    pthread_create(&t, 0, touch, p); // it left long ago
    hear();
    for (size_t i = 0; i < MIB; i += PAGE)
        fresh[i] = 1;
    say("went on");
    pthread_join(t, &got);
    say(got == (void *)1 ? "ok" : "wrong byte");
    return 0;
}
