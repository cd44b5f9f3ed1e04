/* Generated from inject/abi by go generate: the host calls that the node answers. */

static int32_t call_owner_2(uint32_t dataset, uint64_t row, uint64_t * local)
{
    page.arg[0] = (u64)dataset;
    page.arg[1] = (u64)row;
    page.arg[2] = (u64)local;
    i32 st = ask(2);
    if (st >= 0)
        *local = page.result[0];
    return st;
}

static int64_t call_row_2(uint32_t dataset, int32_t element, uint64_t local)
{
    page.arg[0] = (u64)dataset;
    page.arg[1] = (u32)element;
    page.arg[2] = (u64)local;
    ask(3);
    return (int64_t)page.result[0];
}

static int32_t call_shard_rows_2(uint32_t dataset, int32_t element, wherry_rows_range_t * range)
{
    page.arg[0] = (u64)dataset;
    page.arg[1] = (u32)element;
    page.arg[2] = (u64)range;
    i32 st = ask(4);
    if (st >= 0)
        *range = (wherry_rows_range_t){page.result[0], page.result[1]};
    return st;
}

void * wherry_scratch(uint64_t size)
{
    page.arg[0] = (u64)size;
    ask(8);
    return (void *)page.result[0];
}

static int32_t call_reply(const void * data, uint32_t size)
{
    page.arg[0] = (u64)data;
    page.arg[1] = (u64)size;
    i32 st = ask(9);
    return st;
}

int32_t wherry_reply_part(const void * data, uint32_t size)
{
    page.arg[0] = (u64)data;
    page.arg[1] = (u64)size;
    i32 st = ask(10);
    return st;
}

static int32_t call_forward_2(uint32_t function, int32_t element, const void * payload, uint32_t size)
{
    page.arg[0] = (u64)function;
    page.arg[1] = (u32)element;
    page.arg[2] = (u64)payload;
    page.arg[3] = (u64)size;
    i32 st = ask(11);
    return st;
}

int32_t wherry_fork_2(uint32_t function, int32_t element, const void * payload, uint32_t size)
{
    page.arg[0] = (u64)function;
    page.arg[1] = (u32)element;
    page.arg[2] = (u64)payload;
    page.arg[3] = (u64)size;
    i32 st = ask(12);
    return st;
}

int32_t wherry_derive(const void * constants, uint32_t size)
{
    page.arg[0] = (u64)constants;
    page.arg[1] = (u64)size;
    i32 st = ask(13);
    return st;
}

int32_t wherry_constants(void * constants, uint32_t size)
{
    page.arg[0] = (u64)constants;
    page.arg[1] = (u64)size;
    i32 st = ask(14);
    return st;
}

int32_t wherry_assemble(const void * code, uint32_t size)
{
    page.arg[0] = (u64)code;
    page.arg[1] = (u64)size;
    i32 st = ask(15);
    return st;
}

int32_t wherry_get(int32_t element, uint32_t window, uint64_t offset, void * data, uint32_t size)
{
    page.arg[0] = (u32)element;
    page.arg[1] = (u64)window;
    page.arg[2] = (u64)offset;
    page.arg[3] = (u64)data;
    page.arg[4] = (u64)size;
    i32 st = ask(16);
    return st;
}

static int32_t call_get_near(int32_t element, uint32_t window, uint64_t offset, void * data, uint32_t size)
{
    page.arg[0] = (u32)element;
    page.arg[1] = (u64)window;
    page.arg[2] = (u64)offset;
    page.arg[3] = (u64)data;
    page.arg[4] = (u64)size;
    i32 st = ask(17);
    return st;
}

int32_t wherry_put(int32_t element, uint32_t window, uint64_t offset, const void * data, uint32_t size)
{
    page.arg[0] = (u32)element;
    page.arg[1] = (u64)window;
    page.arg[2] = (u64)offset;
    page.arg[3] = (u64)data;
    page.arg[4] = (u64)size;
    i32 st = ask(18);
    return st;
}

int32_t wherry_atomic(int32_t element, uint32_t window, uint64_t offset, uint32_t op, uint32_t width, uint64_t operand, uint64_t compare, uint64_t * old)
{
    page.arg[0] = (u32)element;
    page.arg[1] = (u64)window;
    page.arg[2] = (u64)offset;
    page.arg[3] = (u64)op;
    page.arg[4] = (u64)width;
    page.arg[5] = (u64)operand;
    page.arg[6] = (u64)compare;
    page.arg[7] = (u64)old;
    i32 st = ask(19);
    if (st >= 0)
        *old = page.result[0];
    return st;
}

void wherry_log(const char * text, uint32_t size)
{
    page.arg[0] = (u64)text;
    page.arg[1] = (u64)size;
    ask(20);
}

uint64_t wherry_remaining(void)
{
    ask(22);
    return (uint64_t)page.result[0];
}

uint64_t wherry_random(void)
{
    ask(23);
    return (uint64_t)page.result[0];
}
