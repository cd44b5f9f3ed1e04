package inject_test

import (
	"testing"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
)

// TestListedWindows: a function has those windows in its memory that its manifest lists, or all if it lists none.
func TestListedWindows(t *testing.T) {
	s := newStreet(t)
	whole := s.table.Clone()
	for i := range whole.Shards {
		w := whole.Shards[i].Windows[0]
		whole.Shards[i].Windows = append(whole.Shards[i].Windows, w)
	}
	s.table = whole
	for name, c := range map[string]struct {
		windows []image.Window
		second  uint64
	}{
		"listed": {[]image.Window{{Name: "words"}}, 0},
		"none":   {nil, words * 8},
		"both":   {[]image.Window{{Name: "words"}, {Name: "again"}}, words * 8},
	} {
		f := s.prepareImage(s.client, stepsImage(t, name, func(m *image.Manifest) { m.Windows = c.windows }))
		if _, err := f.Do(within(t, patience), inject.Root{Element: 1, Payload: payload(3, one(opGet, 1, 2), one(opGet, 0, 2))}, nil); err != nil {
			t.Fatal(err)
		}
		s.spies[1].mu.Lock()
		bound := s.spies[1].bound
		s.spies[1].mu.Unlock()
		if got := bound[len(bound)-1]; len(got) != 2 || got[0].Size != words*8 || got[1].Size != c.second {
			t.Errorf("%s: windows %+v; want a second one of %d bytes", name, got, c.second)
		}
	}
}
