package excache

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/wherry-fabric/wherry/pool"
)

// TestReleaseOfLost: a component that does not answer is waited for once, not once for each room.
func TestReleaseOfLost(t *testing.T) {
	asked := 0
	s := NewRegions(nil, "n1")
	s.forget = func(*pool.Region) error {
		asked++
		return errors.New("no answer in time")
	}
	for range 64 {
		s.rooms = append(s.rooms, roomBytes{region: new(pool.Region)})
	}
	for r := range 64 {
		s.Release(r)
	}
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}

// TestReleaseOfSilent: a component that is known to be silent is not asked at all.
func TestReleaseOfSilent(t *testing.T) {
	s := NewRegions(nil, "n1")
	s.forget = func(*pool.Region) error {
		t.Error("it was asked")
		return nil
	}
	s.rooms = append(s.rooms, roomBytes{region: new(pool.Region)})
	s.Silent()
	s.Release(0)
}

// TestLateTake: a region that is made after its program was told that there is none is given back.
func TestLateTake(t *testing.T) {
	s := NewRegions(nil, "n1")
	answer := make(chan struct{})
	var asked atomic.Int32
	late := new(pool.Region)
	s.create = func(context.Context) (*pool.Region, error) {
		asked.Add(1)
		<-answer
		return late, nil
	}
	forgotten := make(chan *pool.Region, 1)
	s.forget = func(r *pool.Region) error {
		forgotten <- r
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 { // one is waited for at a time
		if err := s.Take(ctx, 0); !errors.Is(err, ErrFull) {
			t.Fatalf("%v, want %v", err, ErrFull)
		}
	}
	close(answer)
	if r := <-forgotten; r != late || asked.Load() != 1 {
		t.Errorf("%p was given back, want %p; %d were asked for", r, late, asked.Load())
	}
}
