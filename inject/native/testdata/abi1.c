/* What ABI 1 had in another form, as it had it: struct {u32 op, n; u64 a, b;}, as lab.c. */
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
#if defined(__wasm__)
#define CALL(name) __attribute__((import_module("wherry"), import_name(#name)))
#define EXPORT __attribute__((export_name("wherry_main"), visibility("default")))
#else
#define CALL(name)
#define EXPORT __attribute__((visibility("default")))
#endif

CALL(owner) i32 wherry_owner(u64 row, u64 *local);
CALL(row) i64 wherry_row(i32 element, u64 local);
CALL(shard_rows) i32 wherry_shard_rows(i32 element, u64 *range);
CALL(forward) i32 wherry_forward(i32 element, const void *payload, u32 size);
CALL(fork) i32 wherry_fork(i32 element, const void *payload, u32 size);
CALL(reply) i32 wherry_reply(const void *data, u32 size);
#ifdef LATER
CALL(random) u64 wherry_random(void);
#endif

static char buffer[200];

EXPORT i32 wherry_main(const void *payload, u32 size)
{
    const struct { u32 op, n; u64 a, b; } *o = payload;
    u64 v[7] = {0};
    switch (o->op) {
    case 1: return wherry_forward((i32)o->n, payload, size);
    case 2: return wherry_forward((i32)o->n, buffer, sizeof buffer);
    case 3: v[0] = (u64)wherry_fork((i32)o->n, payload, size); break;
    default:
        v[0] = (u64)wherry_owner(o->a, &v[1]);
        v[2] = (u64)wherry_row((i32)o->n, o->b);
        v[3] = (u64)wherry_shard_rows((i32)o->n, &v[4]);
    }
#ifdef LATER
    v[6] = wherry_random();
#endif
    return wherry_reply(v, sizeof v);
}
