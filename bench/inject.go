package bench

import (
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
)

// inject measures a cached function that reads its payload and replies, beside
// an active message that is answered by a deployed handler.
func (c *client) inject() error {
	rounds := c.spec.Rounds
	if rounds == 0 {
		rounds = 100_000
	}
	img, err := c.spec.image("echo")
	if err != nil {
		return err
	}
	f, err := c.rt.PrepareAs(img, nil, c.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	word, reply := []byte("12345678"), make([]byte, 0, 64)
	root := inject.Root{To: c.eps[0], Payload: word}
	call := func() error {
		got, err := f.Do(c.ctx, root, reply[:0])
		if err == nil && !slices.Equal(got, word) {
			return fmt.Errorf("the function replied %q", got)
		}
		return err
	}
	ping := func() error { return c.ask(c.eps[0], idPing, word) }
	var sends, calls samples
	for _, f := range []func() error{ping, call} {
		if _, err := each(rounds/10, f); err != nil {
			return err
		}
	}
	before, err := c.allocs()
	if err != nil {
		return err
	}
	const turns = injectTurns
	for turn := range turns {
		c.say("active message, cached injection", float64(turn)/turns)
		s, err := each(rounds/turns, ping)
		if err != nil {
			return err
		}
		sends = append(sends, s...)
		if s, err = each(rounds/turns, call); err != nil {
			return err
		}
		calls = append(calls, s...)
	}
	after, err := c.allocs()
	if err != nil {
		return err
	}
	c.r.Set("send_rtt_ns_p50", sends.p(0.5))
	c.r.Set("cached_rtt_ns_p50", calls.p(0.5))
	c.r.Set("inject_over_send_ns", calls.p(0.5)-sends.p(0.5))
	c.r.Set("send_rtt_ns_p99", sends.p(0.99))
	c.r.Set("cached_rtt_ns_p99", calls.p(0.99))
	c.r.Set("allocs_per_op", allocsPerOp(before, after, len(sends)+len(calls)))
	c.r.Set("payload_bytes", len(word))
	c.r.Set("calls", len(calls))
	if c.spec.Code != nil {
		return c.firstIncrements()
	}
	return nil
}

// renamed is an image with another name: the same code, another identity.
func renamed(img *image.Image, name string) (*image.Image, error) {
	m := img.Manifest()
	m.Name = name
	return image.Build(m, img.Entries()...)
}
