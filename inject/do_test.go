package inject_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestDoTogether: several goroutines share a function, some of them giving up early: each gets its own answer or its
// own context's end, and nothing is left.
func TestDoTogether(t *testing.T) {
	client, nodes := mesh(t, 1, fabric.Balanced)
	f, err := client.rt.Prepare(xrdma.Echo(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 200 {
				most := patience
				if g == 0 {
					most = time.Duration(i%20) * 20 * time.Microsecond
				}
				ctx, cancel := context.WithTimeout(context.Background(), most)
				want := fmt.Sprintf("%d of %d", i, g)
				got, err := f.Do(ctx, inject.Root{To: client.eps["n0"], Payload: []byte(want)}, nil)
				cancel()
				switch {
				case err == nil && string(got) != want:
					t.Errorf("got %q, want %q", got, want)
				case err != nil && g != 0:
					t.Errorf("%q: %v", want, err)
				}
			}
		})
	}
	all.Wait()
	for _, m := range append(nodes, client) {
		for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			s := m.rt.Stats().Sizes
			if s.Futures+s.Invocations+s.Running+s.Records == 0 {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s still holds %+v", m.el.Name(), s)
			}
		}
	}
}

// TestDoClosed: a runtime that is closed ends the calls that are under way.
func TestDoClosed(t *testing.T) {
	client, _ := mesh(t, 1, fabric.Balanced)
	f, err := client.rt.Prepare(xrdma.Echo(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all sync.WaitGroup
	begun := make(chan struct{}, 4)
	for range cap(begun) {
		all.Go(func() {
			for i := 0; ; i++ {
				_, err := f.Do(ctx, inject.Root{To: client.eps["n0"], Payload: []byte("x")}, nil)
				if i == 10 {
					begun <- struct{}{}
				}
				if err != nil {
					if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("only time ended it: %v", err)
					}
					return
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	client.rt.Close()
	all.Wait()
}

// TestStartTooLate: where no time is left to start anything, the error names the elements that it was for.
func TestStartTooLate(t *testing.T) {
	s := newStreet(t)
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	roots := []inject.Root{{Element: 1}, {Element: 0}, {Element: 1}}
	if _, err := s.f.Start(over, roots, inject.Options{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), " on "+s.table.Shards[1].Element+", "+s.table.Shards[0].Element+":") {
		t.Errorf("it ended with %v", err)
	}
	if _, err := s.f.Do(over, roots[0], nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), " on "+s.table.Shards[1].Element+":") {
		t.Errorf("it ended with %v", err)
	}
}
