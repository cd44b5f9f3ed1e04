/* What compilers make relocations of: calls, tables of pointers, constants of every width, statics, a switch.
 * go generate compiles it for three processors (objects_test.go). */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

int wherry_self(void);
int wherry_reply(const void *data, u32 size);

static u64 counter = 7;
static u8 zeroes[70000];
static u8 bytes[64] = {1, 2, 3};
static u16 halves[64] = {4, 5, 6};
static u32 words[64] = {7, 8, 9};
static u64 longs[64] = {10, 11, 12};
static double scale = 2.5;
typedef u64 pair __attribute__((vector_size(16)));
static pair wide = {1, 2};

__attribute__((noinline)) static u64 twice(u64 x) { return x * 2 + counter; }
__attribute__((noinline)) static u64 thrice(u64 x) { return x * 3 + zeroes[x * 256 & 65535]++; }

typedef u64 (*operation)(u64);
static operation const table[] = {twice, thrice};
static const char *const names[] = {"twice", "thrice", "by self"};
static int (*volatile imported)(void) = wherry_self;

__attribute__((noinline)) static u64 chosen(u32 which, u64 x)
{
    switch (which) {
    case 0: return x + 11;
    case 1: return x * 13;
    case 2: return x ^ 17;
    case 3: return x - wherry_self();
    case 4: return x << 3;
    case 5: return x >> 2;
    case 6: return twice(x);
    case 7: return thrice(x);
    }
    return 0;
}

int wherry_main(const void *payload, u32 size)
{
    const u8 *in = payload;
    u64 out[8] = {0};
    int (*direct)(void) = wherry_self;
    for (u32 i = 0; i < size; i++) {
        out[0] += table[in[i] & 1](in[i]);
        out[1] += chosen(in[i], out[0]);
        out[2] += bytes[0] + halves[1] + words[2] + longs[0];
        bytes[i & 63] += in[i], halves[i & 63] ^= in[i], words[i & 63] -= in[i], longs[i & 63] += in[i];
        wide += (pair){in[i], in[i]};
        scale *= 1.5;
    }
    out[3] = (u64)(long long)scale;
    out[4] = wide[0] + wide[1];
    out[5] = names[size % 3][0];
    out[6] = counter++;
    out[7] = (u64)(imported() + direct());
    __asm__ volatile("" : "+r"(direct));
    out[7] += (u64)direct();
    return wherry_reply(out, sizeof out);
}
