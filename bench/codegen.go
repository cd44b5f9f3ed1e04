package bench

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/schema"
)

var (
	//go:embed native/where.c
	whereSource []byte
	//go:embed native/where.json
	whereManifest []byte
)

const (
	// whereColumns is how many numbers of a server's table make a row.
	whereColumns = 4
	// whereTurns is how often both ways take turns.
	whereTurns = 30
	// interpreted is the step by which the function interprets its predicate; by 0 it compiles that.
	interpreted = 1
)

// where builds the function that makes a function of a predicate.
func (b *builder) where() error {
	m, err := image.ParseManifest(whereManifest)
	if err != nil {
		return err
	}
	return b.build(cbuild.Source{Name: "where.c", Code: whereSource}, m, nil)
}

// wherePredicate is the text of the predicate that is measured, and the same in Go; turn makes it another one.
func wherePredicate(turn int) (text string, holds func(a, b, c, d int64) bool) {
	n := int64(turn)
	return fmt.Sprintf("a %% 10 < 3 && (b > c + %d || !(d %% 7 == 5)) && a + b * 3 > c - d", n), func(a, b, c, d int64) bool {
		return a%10 < 3 && (b > c+n || d%7 != 5) && a+b*3 > c-d
	}
}

// answer is what both ways reply with.
type answer struct{ matches, total uint64 }

// codegen compares a function that compiles its predicate where the call begins, and sends that to all servers, with the same one that sends
// itself and interprets the predicate there.
func (c *client) codegen() error {
	table, _, err := c.table()
	if err != nil {
		return err
	}
	img, err := c.spec.image("where")
	if err != nil {
		return err
	}
	f, err := c.rt.PrepareAs(img, table, c.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	turns := c.spec.Rounds
	if turns == 0 {
		turns = whereTurns
	}
	rows := permutation(c.spec.Rows, c.spec.Seed)
	wants := func(turn int) (want answer) {
		_, holds := wherePredicate(turn)
		for r := rows; len(r) > 0; r = r[whereColumns:] {
			if holds(int64(r[0]), int64(r[1]), int64(r[2]), int64(r[3])) {
				want.matches++
				want.total += r[0]
			}
		}
		return want
	}
	var times [2]samples // by step
	var first samples
	ask := func(turn, step int, want answer) (time.Duration, error) {
		text, _ := wherePredicate(turn)
		t := time.Now()
		got, err := c.where(f, text, step)
		took := time.Since(t)
		if err == nil && got != want {
			err = fmt.Errorf("%q holds for %d rows with a sum of %d, not for %d with %d", text, got.matches, got.total, want.matches, want.total)
		}
		return took, err
	}
	usual := wants(0)
	for turn := range turns + 1 { // the first one makes everything
		c.say("codegen: made, interpreted", float64(turn)/float64(turns+1))
		took, err := ask(turn+1, 0, wants(turn+1)) // a predicate that no server has seen
		if err != nil {
			return err
		}
		if turn > 0 {
			first = append(first, float64(took))
		}
		for step := range times {
			took, err := ask(0, step, usual)
			if err != nil {
				return err
			}
			if turn > 0 {
				times[step] = append(times[step], float64(took))
			}
		}
	}
	made, walked := times[0].p(0.5), times[interpreted].p(0.5)
	c.r.Set("made_over_interpreted", walked/made) // of the rates
	c.r.Set("made_ms_p50", made/1e6)
	c.r.Set("interpreted_ms_p50", walked/1e6)
	c.r.Set("first_made_ms_p50", first.p(0.5)/1e6)
	c.r.Set("rows", c.spec.Rows/whereColumns)
	c.r.Set("matches", int(usual.matches))
	return nil
}

// where runs the function once.
func (c *client) where(f *inject.Function, predicate string, step int) (sum answer, err error) {
	const head = 16 // offset and size of the text, bytes of a row, step
	var payload []byte
	for _, v := range []int{head, len(predicate), whereColumns, step} {
		payload = binary.LittleEndian.AppendUint32(payload, uint32(v))
	}
	fut, err := f.Start(c.ctx, []inject.Root{{Element: 0, Payload: append(payload, predicate...)}}, inject.Options{})
	if err != nil {
		return sum, err
	}
	r, err := fut.Wait(c.ctx)
	if err != nil {
		return sum, err
	}
	for _, p := range r.Pieces {
		if len(p.Data) == 0 {
			continue // the branch that began has sent others
		}
		if len(p.Data) != schema.PartHeadBytes+16 {
			return sum, fmt.Errorf("a reply of %d bytes", len(p.Data))
		}
		sum.matches += binary.LittleEndian.Uint64(p.Data[schema.PartHeadBytes:])
		sum.total += binary.LittleEndian.Uint64(p.Data[schema.PartHeadBytes+8:])
	}
	return sum, nil
}
