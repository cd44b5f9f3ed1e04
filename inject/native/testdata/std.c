/* What wherry_std.h has: struct {u32 op, n; u64 a, b;}, as lab.c. */
#include "wherry.h"
#include "wherry_std.h"

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Takes and frees n pieces of many sizes, and says how many there were, whether they were whole, and what was sorted wrong. */
static int32_t pieces(uint32_t n)
{
    uint64_t out[4] = {0}, seed = 1, *list = calloc(n, 8), **held = calloc(n, sizeof *held);
    if (!list || !held)
        return WHERRY_ERR_LIMIT;
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if (held[i]) {
                out[1] += held[i][0] == i && held[i][list[i] / 8 - 1] == i;
                free(held[i]);
            }
            list[i] = 16 + seed % 500 / 8 * 8;
            if (!(held[i] = malloc(8)) || !(held[i] = realloc(held[i], list[i])) || (size_t)held[i] % 16)
                return WHERRY_ERR_LIMIT;
            held[i][0] = held[i][list[i] / 8 - 1] = i;
            out[0]++;
        }
    qsort(list, n, 8, ascending);
    for (uint32_t i = 0; i < n; i++) {
        out[2] += i && list[i - 1] > list[i];
        uint64_t *at = bsearch(&list[i], list, n, 8, ascending);
        out[3] += at && *at == list[i];
    }
    return wherry_reply(out, sizeof out);
}

WHERRY_ENTRY(payload, size)
{
    const struct { uint32_t op, n; uint64_t a, b; } *o = payload;
    double x = wherry_double(o->a), out[4] = {0};
    const char *text = "to be, or not to be";
    switch (o->op) {
    case 1: return pieces(o->n);
    case 2:
        out[0] = sqrt(x), out[1] = exp(x), out[2] = log(x), out[3] = fabs(x);
        return wherry_reply(out, sizeof out);
    case 3:
        out[0] = (double)strlen(text), out[1] = (double)(strstr(text, "not") - text), out[2] = strcmp("abc", "abd") < 0 && strncmp("abc", "abd", 2) == 0;
        out[3] = strchr(text, 'x') == NULL && strstr(text, "never") == NULL && strchr(text, ',') == text + 5 && *strchr(text, 0) == 0;
        return wherry_reply(out, sizeof out);
    case 4:
        return malloc(o->a) ? WHERRY_OK : WHERRY_ERR_LIMIT;
    case 5:
        out[0] = ldexp(x, (int32_t)o->n);
        return wherry_reply(out, 8);
    }
    return 1;
}
