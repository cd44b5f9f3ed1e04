/* steps: does what its payload says, step by step, for the tests of package inject.
 *
 * The payload is a sum of 64 bits and the steps. Whatever a step learns (a host call's status, a word that it
 * reads) goes into the sum, and a branch that neither replies nor moves on by itself replies with that. What goes to
 * another branch, or along with this one, is the sum and the n steps that follow; they are not this run's then.
 */
#include "wherry.h"

typedef struct {
    uint8_t op, a;
    uint16_t n;
} step_t;

#define MOST 512
typedef struct {
    uint64_t sum;
    step_t steps[MOST];
} program_t;

static program_t self, other;
static uint8_t bytes[60 << 10];
static volatile uint32_t zero;

static void note(uint64_t v) { self.sum = (self.sum ^ v) * 0x9e3779b97f4a7c15u + 1; }

static const void *fill(uint32_t n)
{
    for (uint32_t i = 0; i < n && i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((self.sum >> (i % 8 * 8)) + i);
    return bytes;
}

/* The program of n steps from the i-th on. */
static uint32_t take(uint32_t i, uint32_t n)
{
    other.sum = self.sum + i;
    for (uint32_t k = 0; k < n; k++)
        other.steps[k] = self.steps[i + k];
    return (uint32_t)(sizeof other.sum + n * sizeof other.steps[0]);
}

WHERRY_ENTRY(payload, size)
{
    if (size < sizeof self.sum || size > sizeof self)
        return WHERRY_ERR_ARGUMENT;
    for (uint32_t i = 0; i < size; i++)
        ((uint8_t *)&self)[i] = ((const uint8_t *)payload)[i];
    uint32_t count = (size - (uint32_t)sizeof self.sum) / (uint32_t)sizeof self.steps[0], gone = 0;
    for (uint32_t i = 0; i < count; i++) {
        step_t s = self.steps[i];
        uint64_t word = 0, *at;
        wherry_window_t w;
        int32_t st;
        switch (s.op) {
        case 0: /* nothing: it makes a payload longer */
            break;
        case 1: /* a reply of n bytes */
            note((uint64_t)(st = wherry_reply(fill(s.n), s.n)));
            gone |= st == WHERRY_OK;
            break;
        case 2: /* n bytes ahead */
            note((uint64_t)wherry_reply_part(fill(s.n), s.n));
            break;
        case 3: /* on to element a */
            note((uint64_t)(st = wherry_forward(0, s.a, &other, take(i + 1, s.n))));
            gone |= st == WHERRY_OK;
            i += s.n;
            break;
        case 4: /* another branch on element a */
            note((uint64_t)wherry_fork(0, s.a, &other, take(i + 1, s.n)));
            i += s.n;
            break;
        case 5: /* word n of element a */
            note((uint64_t)wherry_get(s.a, 0, s.n * 8u, &word, 8));
            note(word);
            break;
        case 6:
            note((uint64_t)wherry_put(s.a, 0, s.n * 8u, &self.sum, 8));
            break;
        case 7:
            note((uint64_t)wherry_atomic(s.a, 0, s.n * 8u, WHERRY_ATOMIC_ADD, 8, self.sum, 0, &word));
            note(word);
            break;
        case 8: /* word n of this element, as its own memory */
            WHERRY_TRY(wherry_window(0, &w));
            note(((const volatile uint64_t *)w.addr)[s.n]);
            break;
        case 9:
            wherry_log((const char *)&self.sum, 8);
            break;
        case 10: /* n times a thousand rounds */
            for (uint32_t k = 0; k < s.n * 1000u; k++)
                zero = 0;
            break;
        case 11: /* for ever */
            for (;;)
                zero = 0;
        case 12:
            __builtin_trap();
        case 13: /* fails with status n */
            return s.n;
        case 14: /* scratch, that it may not have */
            at = wherry_scratch(8);
            note(at != NULL);
            break;
        case 15: /* ends without a reply */
            return WHERRY_OK;
        case 16: /* whether more than n seconds are left */
            note(wherry_remaining() > s.n * 1000000000ull);
            break;
        case 17: /* until word n of this element is not 0 */
            WHERRY_TRY(wherry_window(0, &w));
            while (!((const volatile uint64_t *)w.addr)[s.n])
                zero = 0;
            break;
        case 18: /* on to element a, as function 1 */
            note((uint64_t)(st = wherry_forward(1, s.a, &other, take(i + 1, s.n))));
            gone |= st == WHERRY_OK;
            i += s.n;
            break;
        case 19: /* another branch on element a, as function 1 */
            note((uint64_t)wherry_fork(1, s.a, &other, take(i + 1, s.n)));
            i += s.n;
            break;
        case 20: /* how often the invocation has come by here, of this function's runs */
            at = wherry_scratch(8);
            note(at ? ++*at : 0);
            break;
        case 21: /* function 1 is this one with n as its constants, a bytes long */
            word = s.n;
            note((uint64_t)wherry_derive(&word, s.a));
            break;
        case 22: /* its own constants, a bytes long */
            note((uint64_t)wherry_constants(&word, s.a));
            note(word);
            break;
        case 23: /* function 1 is the n bytes of code from word a of this element on */
            WHERRY_TRY(wherry_window(0, &w));
            note((uint64_t)wherry_assemble((const uint64_t *)w.addr + s.a, s.n));
            break;
        case 24: /* word n of element a, if that is near */
            note((uint64_t)wherry_get_near(s.a, 0, s.n * 8u, &word, 8));
            note(word);
            break;
        default:
            return WHERRY_ERR_UNSUPPORTED;
        }
    }
    return gone ? WHERRY_OK : wherry_reply(&self.sum, sizeof self.sum);
}
