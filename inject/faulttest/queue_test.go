package faulttest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestFullQueues covers: both queues of a pair full at once, because functions
// fork and forward to each other beyond what fits. They wait for room, and all complete.
func TestFullQueues(t *testing.T) { overBoth(t, fullQueues) }

func fullQueues(t *testing.T, change func(*settings)) {
	g := newGrid(t, 2, nil, func(s *settings) {
		change(s)
		s.OutboxBytes, s.WindowBytes = 64<<10, 256<<10
		s.Running, s.Travel = 4, travel.Limits{PrincipalHeldRuns: 1000, HeldRuns: 6000}
	})
	f := g.prepare(g.client, guestImage(t, "journey", withLimits(func(l *abi.Limits) { l.Forks, l.RunTime = 1<<16, time.Minute })), g.plain())
	ctx := within(t, time.Minute)
	// storm runs one invocation of n branches that go to the other node and come back.
	storm := func(i int, n uint32, ns uint64) error {
		r, err := run(ctx, f, inject.Root{Element: uint32(i % 2), Payload: order(6, n, ns)})
		if err == nil && len(r.Pieces) != int(n)+1 {
			t.Errorf("a partial success: %d pieces of %d", len(r.Pieces), n+1)
		}
		return err
	}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			n, ns := uint32(20), uint64(0)
			if i%4 > 1 { // as many on each side
				n, ns = 4000, uint64(10*time.Microsecond)
			}
			if err := storm(i, n, ns); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	g.serves()
}

// TestStartWaitsForRoom covers: many starts at once to an element that takes a
// few at a time wait for room and all complete.
func TestStartWaitsForRoom(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, func(s *settings) {
		s.OutboxBytes, s.WindowBytes = 64<<10, 256<<10
		s.Travel.Futures = 40
	})
	f := g.prepare(g.client, guestImage(t, "faults", nil), nil)
	ctx := within(t, 30*time.Second)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			payload := append(order(0, uint32(i), 0), make([]byte, 20<<10)...)
			got, err := f.Do(ctx, g.at(i%2, payload), nil)
			if err != nil || string(got) != string(payload) {
				t.Errorf("%d: %d bytes, %v", i, len(got), err)
			}
		}()
	}
	wg.Wait()
	g.serves()
}

// TestEvictedCode covers: an element that has let go of a function's code, for
// want of room in its cache, asks for it again and runs it.
func TestEvictedCode(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, func(s *settings) {
		if s.Engine {
			s.CacheBytes, s.Travel.IdleUnpin = 30<<10, time.Millisecond
		}
	})
	var functions []*inject.Function
	for i := range 6 { // each about 9 KiB
		img := guestImage(t, "value1", func(m *image.Manifest) { m.Description = strings.Repeat(fmt.Sprint("padding ", i), 900) })
		functions = append(functions, g.prepare(g.client, img, nil))
	}
	for round := range 4 {
		for i, f := range functions {
			for n := range g.nodes {
				var got []byte
				var err error
				eventually(t, "there is never room for other code", func() string {
					// Where the node had no time to see that the others are idle, there is none yet.
					if got, err = f.Do(within(t, patience), g.at(n, nil), nil); errors.Is(err, travel.ErrNoCode) {
						return err.Error()
					}
					return ""
				})
				if err != nil || string(got) != "\x01\x00\x00\x00" {
					t.Fatalf("round %d, function %d at n%d: %q, %v", round, i, n, got, err)
				}
			}
			time.Sleep(4 * time.Millisecond) // so that it is not in use any more
		}
	}
	for _, n := range g.nodes {
		if s := n.report(t).Stats; s.Evicted < 10 || s.Needs == 0 || s.CacheBytes > 30<<10 {
			t.Errorf("%s evicted %d objects, asked for code %d times, keeps %d bytes", n.name, s.Evicted, s.Needs, s.CacheBytes)
		}
	}
	g.serves()
}

// TestCacheInUse covers: a cache all of whose code is running takes no more, and says so.
func TestCacheInUse(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, func(s *settings) {
		if s.Engine {
			s.CacheBytes, s.Travel.IdleUnpin = 12<<10, time.Millisecond
		}
	})
	slow := g.prepare(g.client, guestImage(t, "faults", func(m *image.Manifest) {
		m.Description = strings.Repeat("padding", 800)
		m.Limits.RunTime = time.Minute
	}), nil)
	fut, err := slow.Start(within(t, time.Minute), []inject.Root{g.at(0, order(4, 0, 0))}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first function does not run", func() string {
		if g.nodes[0].report(t).Stats.Sizes.Running == 1 {
			return ""
		}
		return "not yet"
	})
	other := g.prepare(g.client, guestImage(t, "value1", func(m *image.Manifest) { m.Description = strings.Repeat("padding", 1000) }), nil)
	_, err = other.Do(within(t, patience), g.at(0, nil), nil)
	if !errors.Is(err, travel.ErrNoCode) {
		t.Errorf("%v is not ErrNoCode", err)
	}
	says(t, err, "n0", "value", "code cache", "in use")
	fut.Cancel()
	g.stopped(time.Now())
	eventually(t, "the other function does not run after that", func() string {
		if _, err := other.Do(within(t, patience), g.at(0, nil), nil); err != nil {
			return err.Error()
		}
		return ""
	})
	g.quiet()
}

// TestPeersComeAndGo covers: numbers of peers that have gone are used again;
// nobody gets another's authority with one, also not over a second connection.
func TestPeersComeAndGo(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	img := guestImage(t, "faults", nil)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range 8 {
				token := "alice"
				if (i+k)%2 == 0 {
					token = "nobody"
				}
				visit(t, g, img, token, i*100+k)
			}
		}()
	}
	wg.Wait()
	g.serves()
}

// visit connects three times as a client, and calls while connections close one after the other.
func visit(t *testing.T, g *grid, img *image.Image, token string, i int) {
	e, err := newElement(settings{Name: fmt.Sprint("visitor", i), Token: token, Several: true})
	if err != nil {
		t.Error(err)
		return
	}
	defer e.close()
	f, err := e.rt.Prepare(img, nil)
	if err != nil {
		t.Error(err)
		return
	}
	for range 3 {
		if _, err := e.Dial(within(t, patience), g.nodes[0].addrs[0]); err != nil {
			t.Error(err)
			return
		}
	}
	eps := e.Endpoints()
	for n := range eps {
		_, err := f.Do(within(t, patience), inject.Root{To: eps[len(eps)-1], Payload: order(0, 1, 1)}, nil)
		switch {
		case token == "alice" && err != nil && !errors.Is(err, travel.ErrPeerLost) && !errors.Is(err, travel.ErrNoPeer):
			t.Errorf("visit %d over connection %d: %v", i, n, err)
		case token == "nobody" && !errors.Is(err, travel.ErrRefused) && !errors.Is(err, travel.ErrPeerLost):
			t.Errorf("visit %d over connection %d, without the right to: %v", i, n, err)
		}
		if n < len(eps)-1 {
			eps[n].Close()
		}
	}
}

// TestColdBurst covers: branches that arrive together and wait for the same code
// run beside each other once it is there, also if the first takes for ever.
func TestColdBurst(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	f := g.prepare(g.client, bulkyImage(t, 1), nil)
	var futures []*inject.Future
	for range 6 {
		fut, err := f.Start(within(t, time.Minute), []inject.Root{g.at(0, order(4, 0, 0))}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	eventually(t, "they do not all run", func() string {
		if s := g.nodes[0].report(t).Stats; s.Runs < 6 {
			return fmt.Sprintf("%d have begun, %d wait", s.Runs, s.Sizes.Queued)
		}
		return ""
	})
	for _, fut := range futures {
		fut.Cancel()
	}
	g.serves()
}

// TestCrowdOfLarge covers: more calls at once than may wait for room for an instance, by their bytes. They wait their turn, and all complete.
func TestCrowdOfLarge(t *testing.T) {
	t.Parallel()
	const all, bytes = 300, 58 << 10
	g := newGrid(t, 1, nil, func(s *settings) {
		s.Instances = 2
		s.Travel = travel.Limits{PrincipalHeldBytes: all / 4 * bytes, BacklogBytes: 1}
	})
	f := g.prepare(g.client, guestImage(t, "journey", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), nil)
	ctx := within(t, time.Minute)
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			if _, err := run(ctx, f, g.at(0, append(order(9, 0, uint64(time.Millisecond)), make([]byte, bytes)...))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	g.serves()
}
