package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
)

// during loads spec, and does something when the nodes have its name and some of its rows.
func during(ctx context.Context, c *Client, spec LoadSpec, do func()) error {
	once := sync.OnceFunc(do)
	_, err := c.Load(ctx, spec, func(p LoadProgress) {
		if p.Phase == string(dataset.PhaseFill) {
			once()
		}
	})
	return err
}

// A load goes on while many others, of other names, begin and end: a new dataset, one that is replaced and one that is added to. Of two loads
// of one name the second is refused.
func TestLoadsBesideOthers(t *testing.T) {
	b := newBench(t, "tcp", "n1", "n2")
	c, other := b.connect(t, tokenOwner), b.connect(t, tokenOther)
	for _, name := range []string{"added", "replaced"} {
		if _, err := c.Load(t.Context(), csvColumns(name, numbers(0, 100)), nil); err != nil {
			t.Fatal(err)
		}
	}
	added, replaced := csvColumns("added", numbers(100, 200)), csvColumns("replaced", numbers(0, 200))
	added.Append, replaced.Replace = true, true
	short := csvColumns("short", numbers(0, 10))
	short.Replace = true
	for _, spec := range []LoadSpec{csvColumns("fresh", numbers(0, 200)), added, replaced} {
		err := during(t.Context(), c, spec, func() {
			for range 3 {
				if _, err := other.Load(t.Context(), short, nil); err != nil {
					t.Errorf("beside %s: %v", spec.Name, err)
				}
			}
			if _, err := c.Load(t.Context(), spec, nil); !errors.Is(err, cluster.ErrExists) || !strings.Contains(err.Error(), "is being loaded just now") {
				t.Errorf("%s twice: %v", spec.Name, err)
			}
		})
		if err != nil {
			t.Errorf("%s: %v", spec.Name, err)
			continue
		}
		r, err := c.Reader(t.Context(), spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got := sortedColumns(t, r); got != sortedLines(numbers(0, 200)) {
			t.Errorf("%s has %d lines", spec.Name, strings.Count(got, "\n"))
		}
	}
}

// Pairs of loads at once, of a dozen names.
func TestLoadsInPairs(t *testing.T) {
	b := newBench(t, "shm", "n1", "n2")
	clients := []*Client{b.connect(t, tokenOwner), b.connect(t, tokenOther)}
	for pair := range 6 {
		var both sync.WaitGroup
		for i, c := range clients {
			both.Go(func() {
				name := fmt.Sprintf("p%d-%d", pair, i)
				if _, err := c.Load(t.Context(), csvColumns(name, numbers(0, 20_000)), nil); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
}
