// The host calls, as the tests need them: pointers are plain numbers.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
#define IMPORT(name) __attribute__((import_module("wherry"), import_name(name)))
IMPORT("self") int h_self(void);
IMPORT("elements") int h_elements(void);
IMPORT("owner") int h_owner(u64 row, u32 local_out);
IMPORT("row") long long h_row(u32 element, u64 local);
IMPORT("shard_rows") int h_shard_rows(u32 element, u32 out);
IMPORT("window") int h_window(u32 index, u32 out);
IMPORT("payload") int h_payload(u32 out);
IMPORT("scratch") u32 h_scratch(u64 size);
IMPORT("reply") int h_reply(u32 ptr, u32 len);
IMPORT("reply_part") int h_reply_part(u32 ptr, u32 len);
IMPORT("forward") int h_forward(u32 element, u32 ptr, u32 len);
IMPORT("fork") int h_fork(u32 element, u32 ptr, u32 len);
IMPORT("get") int h_get(u32 element, u32 window, u64 offset, u32 ptr, u32 len);
IMPORT("put") int h_put(u32 element, u32 window, u64 offset, u32 ptr, u32 len);
IMPORT("atomic") int h_atomic(u32 element, u32 window, u64 offset, u32 op, u32 width, u64 operand, u64 compare, u32 old_out);
IMPORT("log") void h_log(u32 ptr, u32 len);
IMPORT("now") u64 h_now(void);
IMPORT("remaining") u64 h_remaining(void);
#define EXPORT __attribute__((visibility("default")))
#define ADDR(p) ((u32)(p))
#define AT(type, a) (*(volatile type *)(a))
