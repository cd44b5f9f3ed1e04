package share

import (
	"errors"
	"testing"
)

// TestPlaces: one principal cannot have all, and others get what it leaves.
func TestPlaces(t *testing.T) {
	p := Places{Limit: 8, What: "loads"}
	for range 6 {
		if err := p.Take("eve"); err != nil {
			t.Fatal(err)
		}
	}
	var full *FullError
	if err := p.Take("eve"); !errors.As(err, &full) || full.Who != "eve" || full.Limit != 6 || p.Has("eve") != 6 {
		t.Errorf("a seventh of eight: %v", err)
	}
	for range 2 {
		if err := p.Take("ann"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Take("bob"); !errors.As(err, &full) || full.Who != "" || full.Has != 8 {
		t.Errorf("a ninth of eight: %v", err)
	}
	p.Give("eve")
	if err := p.Take("bob"); err != nil || p.Has("eve") != 5 {
		t.Error(err)
	}
	for range 5 {
		p.Give("eve")
	}
	p.Give("bob")
	if p.all != 2 || len(p.of) != 1 {
		t.Errorf("%d are left, of %v", p.all, p.of)
	}
}

func TestOf(t *testing.T) {
	for limit, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3, 8: 6, 256: 192} {
		if got := Of(limit); got != want {
			t.Errorf("of %d: %d, want %d", limit, got, want)
		}
	}
}
