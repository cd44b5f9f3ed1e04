// Never finishes its constructor.
#include "host.h"
static volatile u32 on = 1;
EXPORT void _initialize(void) { while (on) h_log(0, 1); }
EXPORT int wherry_main(u32 p, u32 n) { return 0; }
