package share

import (
	"fmt"
	"testing"
	"time"
)

// TestDoor: a crowd that says nothing does not keep out who comes from elsewhere, nor who comes from the same place, for longer than its grace.
func TestDoor(t *testing.T) {
	now := time.Unix(1, 0)
	d := Door{Limit: 8, Grace: time.Second}
	ended := map[string]int{}
	enter := func(from string) *Guest {
		t.Helper()
		for tries := 0; ; tries++ {
			g, out, wait := d.Enter(now, from, func() { ended[from]++ })
			if out != nil {
				out()
			}
			if g != nil {
				return g
			}
			if wait <= 0 || wait > d.Grace || tries > 0 {
				t.Fatalf("%s has to wait for %v, once more", from, wait)
			}
			now = now.Add(wait)
		}
	}
	honest := enter("ann")
	for range 100 {
		enter("eve")
	}
	if d.Len() != 8 || ended["eve"] != 93 || ended["ann"] != 0 {
		t.Fatalf("%d stand there, %v were ended", d.Len(), ended)
	}
	bob := enter("bob")
	if ended["eve"] != 94 || ended["ann"] != 0 {
		t.Errorf("bob has the place of another than eve: %v", ended)
	}
	d.Leave(honest)
	d.Leave(honest)
	d.Leave(bob)
	if d.Len() != 6 || len(d.of) != 1 {
		t.Errorf("%d are left, of %v", d.Len(), d.of)
	}
	for i := range 100 { // each from somewhere else: the first that came goes first
		enter(fmt.Sprint("from ", i))
	}
	n := 0
	d.Each(func(end func()) { n++ })
	if n != 8 || d.Len() != 8 || ended["eve"] != 100 {
		t.Errorf("%d of %d stand there; %d of eve's are gone", n, d.Len(), ended["eve"])
	}
}
