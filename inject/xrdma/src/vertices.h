/* vertices.h: a list of vertices as people write it, numbers with anything but
 * digits between them. */
#ifndef VERTICES_H
#define VERTICES_H

#include "wherry.h"

/* Reads the next number from text[*at] on: 1 and the number, 0 at the end, or a
 * negative status. */
WHERRY_HELPER int32_t vertices_next(const char *text, uint32_t size, uint32_t *at, uint32_t *vertex)
{
    uint32_t i = *at;
    uint64_t v = 0;
    for (; i < size && (text[i] < '0' || text[i] > '9'); i++)
        if (text[i] == '-') /* surely no separator */
            return WHERRY_ERR_ARGUMENT;
    if (i == size)
        return 0;
    for (; i < size && text[i] >= '0' && text[i] <= '9'; i++) {
        v = v * 10 + (uint64_t)(text[i] - '0');
        if (v > UINT32_MAX)
            return WHERRY_ERR_ARGUMENT;
    }
    *vertex = (uint32_t)v;
    *at = i;
    return 1;
}

#endif
