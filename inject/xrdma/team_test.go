package xrdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
)

// The helpers of wherry_team.h, one after the other: a reduce finds the sum of all numbers, element 0 tells it, and then turns times each number goes to the element that
// a hash of it, of the sum and of the turn names. In the end element 1, or 0, gathers what each element has, and how many came in each turn.
const teamSource = `#include "wherry.h"
#define WHERRY_TEAM_BATCH 64u
#include "wherry_team.h"
#define MOST 2000u
enum { SUM = 1, TOLD, TURN, GATHERED = 1000 };
typedef struct {
    uint64_t sum, all;
    uint32_t turns, counts[2];
    uint64_t number[2][MOST]; /* of this turn, and of the next one */
    struct {
        uint32_t turns, zero;
        uint64_t word[3000];
    } out;
} state_t;
static int32_t deal(wherry_team_t *t, state_t *s, uint32_t step)
{
    uint64_t *list = s->number[step & 1];
    for (uint32_t i = 0; i < s->counts[step & 1]; i++)
        WHERRY_TRY(wherry_shuffle(t, step + 1, (uint32_t)(wherry_mix(list[i] + s->all + step) % t->elements), &list[i], 8));
    s->counts[step & 1] = 0;
    return wherry_shuffle_close(t, step + 1);
}
WHERRY_ENTRY(payload, size)
{
    wherry_team_t t;
    uint64_t own = 0;
    WHERRY_TRY(wherry_team_open(&t, payload, size, sizeof(state_t), WHERRY_TEAM_SHUFFLES));
    state_t *s = (state_t *)t.state;
    const uint64_t *word = (const uint64_t *)t.data;
    switch (t.step) {
    case 0:
        if (t.from || !t.last || t.size != 4)
            return 70;
        s->turns = *(const uint32_t *)t.data;
        wherry_window_t w;
        WHERRY_TRY(wherry_window_or_empty(0, &w));
        for (uint32_t i = 0; i < w.size / 8; i++)
            own += s->number[TOLD & 1][s->counts[TOLD & 1]++] = ((const uint64_t *)w.addr)[i];
        return wherry_reduce(&t, SUM, &own, 8);
    case SUM:
        s->sum += *word;
        if (!t.last)
            return WHERRY_OK;
        return t.self ? wherry_reduce_up(&t, &s->sum, 8) : wherry_tell(&t, TOLD, &s->sum, 8);
    case TOLD:
        if (!t.last || t.from)
            return 71;
        s->all = *word;
        return deal(&t, s, TOLD);
    case GATHERED:
        if (s->out.word[0]++ == 0)
            s->out.word[1] = s->all;
        for (uint32_t i = 0; i < t.size / 8; i++)
            s->out.word[2 + s->out.turns++] = word[i];
        return t.last ? wherry_reply(s->out.word, 16 + 8 * s->out.turns) : WHERRY_OK;
    }
    uint32_t *n = &s->counts[t.step & 1];
    for (uint32_t i = 0; i < t.size / 8; i++)
        s->number[t.step & 1][(*n)++] = word[i];
    if (!t.last)
        return WHERRY_OK;
    if (t.step - TOLD < s->turns)
        return deal(&t, s, t.step);
    return wherry_gather(&t, t.elements > 1, GATHERED, s->number[t.step & 1], *n * 8);
}
`

// TestTeam: the helpers' steps hold on any number of elements, whatever order branches run in.
func TestTeam(t *testing.T) {
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "team.c", Code: []byte(teamSource)}, image.Manifest{Name: "team", Limits: abi.Limits{ScratchBytes: 1 << 20}}, cbuild.Options{})
	if errors.Is(err, cbuild.ErrNoCompiler) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "elements")
		turns := rapid.IntRange(1, 12).Draw(t, "turns")
		var all []uint64
		var sum uint64
		windows := make([][][]byte, n)
		for i := range windows {
			var w []byte
			for range rapid.IntRange(0, 40).Draw(t, "numbers") {
				v := rapid.Uint64().Draw(t, "number")
				all, sum = append(all, v), sum+v
				w = binary.LittleEndian.AppendUint64(w, v)
			}
			windows[i] = [][]byte{w}
		}
		c := e.cluster(t, img, blocks(uint64(max(n, 1)), n), windows, order(t))
		defer c.close()
		parts, err := c.invoke(u32s(uint32(turns)), c.every()...)
		if err != nil {
			t.Fatal(err)
		}
		parts = slices.DeleteFunc(parts, func(p []byte) bool { return len(p) == 0 })
		if len(parts) != 1 {
			t.Fatalf("%d elements replied", len(parts))
		}
		var got []uint64
		for b := parts[0]; len(b) > 0; b = b[8:] {
			got = append(got, binary.LittleEndian.Uint64(b))
		}
		if got[0] != uint64(n) || got[1] != sum {
			t.Fatalf("%d elements were gathered, with a sum of %d; want %d, %d", got[0], got[1], n, sum)
		}
		slices.Sort(got[2:])
		slices.Sort(all)
		if !slices.Equal(got[2:], all) {
			t.Fatal(fmt.Sprintf("after %d turns there are %d numbers, of %d", turns, len(got[2:]), len(all)))
		}
	})
}
