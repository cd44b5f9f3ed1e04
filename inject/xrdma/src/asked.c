/* asked: what count, countby, sum and their forms with a condition are.
 *
 * They are names of queries: package invoke sends the function query in their
 * place, with a program made of their arguments.  So this code runs only where
 * another client sends one of them as a function. */
#include "columns.h"

WHERRY_ENTRY(payload, size)
{
    (void)payload;
    (void)size;
    return refuse("this function is the name of a query: call it by wherry fn run or package invoke, or ask with wherry query");
}
