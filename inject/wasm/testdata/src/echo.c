// Replies with its payload.
#include "host.h"
EXPORT int wherry_main(u32 p, u32 n) { return h_reply(p, n); }
