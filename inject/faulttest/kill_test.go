package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// lost checks a future that an element's death must have ended: at once, with
// the element, the branch and the function in the error.
func lost(t *testing.T, start time.Time, err error, element, function string) {
	t.Helper()
	soon(t, start, atOnce)
	if !errors.Is(err, travel.ErrPeerLost) {
		t.Errorf("%v is not ErrPeerLost", err)
		return
	}
	says(t, err, element, function, "branch")
}

// killAfter kills node i after a while, and says when.
func (g *grid) killAfter(i int, d time.Duration) <-chan time.Time {
	at := make(chan time.Time, 1)
	time.AfterFunc(d, func() {
		g.nodes[i].kill()
		at <- time.Now()
	})
	return at
}

// TestKilledInChase covers: kill -9 of an element in the middle of chases that
// pass through it and of one that waits there.
func TestKilledInChase(t *testing.T) { overBoth(t, killedInChase) }

func killedInChase(t *testing.T, change func(*settings)) {
	g := newGrid(t, 4, []int{2}, change)
	slow := withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })
	f := g.prepare(g.client, guestImage(t, "journey", slow), g.plain())
	ctx := within(t, time.Minute)
	var futures []*inject.Future
	for i := range 40 {
		payload := order(1, 4000, uint64(100*time.Microsecond)) // around the circle for seconds
		if i == 0 {
			payload = order(1, 0, uint64(time.Minute)) // stays at n2
		}
		fut, err := f.Start(ctx, []inject.Root{{Element: uint32(i+2) % 4, Payload: payload}}, inject.Options{Hops: 4095})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	at := <-g.killAfter(2, 150*time.Millisecond)
	for _, fut := range futures {
		r, err := fut.Wait(within(t, patience))
		if err == nil {
			t.Errorf("a chase through a dead element ended with %d pieces", len(r.Pieces))
			continue
		}
		lost(t, at, err, "n2", "journey")
	}
	g.serves()
}

func ended(f *inject.Future) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := f.Wait(ctx)
	return err
}

// TestKilledInForkTree covers: kill -9 of an element in the middle of fork
// trees: no tree gives a partial result.
func TestKilledInForkTree(t *testing.T) { overBoth(t, killedInForkTree) }

func killedInForkTree(t *testing.T, change func(*settings)) {
	g := newGrid(t, 4, []int{3}, change)
	f := g.prepare(g.client, guestImage(t, "journey", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), g.plain())
	const depth, branches = 6, 1<<7 - 1
	ctx := within(t, time.Minute)
	count := func(fut *inject.Future) error {
		r, err := fut.Wait(within(t, patience))
		if err == nil && (len(r.Pieces) != branches || r.Branches != branches) {
			t.Errorf("a partial success: %d pieces of %d branches, %d are whole", len(r.Pieces), r.Branches, branches)
		}
		return err
	}
	plant := func() *inject.Future {
		fut, err := f.Start(ctx, []inject.Root{{Payload: order(2, depth, uint64(200*time.Microsecond))}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return fut
	}
	if err := count(plant()); err != nil {
		t.Fatal(err)
	}
	var futures []*inject.Future
	for range 30 {
		futures = append(futures, plant())
	}
	late := g.lateTree(ctx, f)
	at := <-g.killAfter(3, 60*time.Millisecond)
	for _, fut := range futures {
		if err := count(fut); err != nil {
			soon(t, at, atOnce)
			says(t, err, "n3", "journey")
		}
	}
	lost(t, at, ended(late), "n3", "journey")
	g.serves()
}

// lateTree plants a tree of two levels, whose branches stay where they are for longer than any machine
// takes to kill one of the elements.
func (g *grid) lateTree(ctx context.Context, f *inject.Function) *inject.Future {
	g.t.Helper()
	fut, err := f.Start(ctx, []inject.Root{{Payload: order(2, 2, uint64(30*time.Second))}}, inject.Options{})
	if err != nil {
		g.t.Fatal(err)
	}
	return fut
}

// bulkyImage is a good image with so much useless code that it travels in many chunks.
func bulkyImage(t *testing.T, mib int) *image.Image {
	t.Helper()
	noise := make([]byte, mib<<20)
	rand.NewChaCha8([32]byte{byte(mib)}).Read(noise)
	img, err := image.Build(image.Manifest{Name: "bulky", Limits: abi.Limits{RunTime: time.Minute}}, image.Entry{Form: image.Wasm, Code: withCustom(guests["faults"], noise)})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// withCustom appends a custom section to a wasm module.
func withCustom(code, content []byte) []byte {
	body := append([]byte{4, 'b', 'u', 'l', 'k'}, content...)
	b := append(append([]byte(nil), code...), 0)
	for n := len(body); ; n >>= 7 {
		if n < 0x80 {
			b = append(b, byte(n))
			break
		}
		b = append(b, byte(n)|0x80)
	}
	return append(b, body...)
}

// TestKilledInFirstSend covers: kill -9 of an element while a large function's
// code is on its way there, and of an origin while it sends one.
func TestKilledInFirstSend(t *testing.T) { overBoth(t, killedInFirstSend) }

func killedInFirstSend(t *testing.T, change func(*settings)) {
	g := newGrid(t, 2, []int{1}, change)
	big := bulkyImage(t, 6)
	f := g.prepare(g.client, big, nil)
	fut, err := f.Start(within(t, time.Minute), []inject.Root{g.at(1, order(0, 1, 1))}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the code is not on its way", func() string {
		if g.client.report().Stats.Chunks > 8 {
			return ""
		}
		return "few chunks went out"
	})
	g.nodes[1].kill()
	at := time.Now()
	lost(t, at, ended(fut), "n1", "bulky")
	if _, err := f.Do(within(t, patience), g.at(0, order(0, 1, 1)), nil); err != nil {
		t.Errorf("the same function elsewhere: %v", err)
	}
	g.serves()
}

// TestOriginVanishes covers: an origin that goes while its code is half sent
// and while its functions run: the element frees all of it.
func TestOriginVanishes(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	h := newHostile(t, g, "alice", 0)
	big := bulkyImage(t, 4)
	encoded := big.Encode()
	h.mu.Lock()
	h.need = func(id travel.ID, first, count int) {
		if first == 0 { // and nothing after the first chunk
			h.to.Post(frame(kindCode), code(id, uint32(len(encoded)), 0, encoded[:travel.ChunkBytes]), nil)
		}
	}
	h.mu.Unlock()
	h.inject(injection{seq: 1, image: travel.ID(big.ID())})
	img := guestImage(t, "faults", nil)
	h.inject(injection{seq: 2, transfer: 1, handle: 1, image: travel.ID(img.ID()), inline: img.Encode(), payload: order(4, 0, 0)})
	eventually(t, "the element does not hold what it was sent", func() string {
		if s := g.nodes[0].report(t).Stats.Sizes; s.FetchBytes == 0 || s.Running == 0 {
			return "not yet"
		}
		return ""
	})
	h.el.Close()
	g.serves() // and with that: holds nothing any more
}

// TestStoppedOrigin covers: an origin that stops reading (SIGSTOP) while a
// function streams to it. The function ends by its deadline, the element
// serves others meanwhile, and the origin is declared lost.
func TestStoppedOrigin(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, func(s *settings) {
		if s.Engine {
			s.PeerTime = 1500 * time.Millisecond
		}
	})
	origin := &node{name: "origin", dead: true}
	origin.child, _ = startChild(t, settings{Name: "origin", Token: "alice", Streams: g.nodes[0].addrs[0]})
	served := g.nodes[0].own
	eventually(t, "no stream", func() string {
		if served.report().Stats.Sizes.Running == 1 {
			return ""
		}
		return "nothing runs"
	})
	if err := origin.child.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer origin.child.Signal(syscall.SIGKILL)
	start := time.Now()
	for served.report().Stats.Sizes.Running > 0 {
		if _, err := g.echo.Do(within(t, 2*time.Second), g.at(0, []byte("x")), nil); err != nil {
			t.Fatalf("beside the stream: %v", err)
		}
		soon(t, start, patience)
		if t.Failed() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	eventually(t, "the origin is not declared lost", func() string {
		if n := len(served.Endpoints()); n != 1 {
			return "it has an endpoint still"
		}
		return ""
	})
	g.serves()
}

// TestFrozenElement covers: an element that is frozen (SIGSTOP), not dead. It is
// given up for lost when it has been silent for too long, and the function that
// was there with it, long before the deadline; thawed, it finds itself alone.
func TestFrozenElement(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, []int{2}, func(s *settings) { s.PeerTime = 2 * time.Second })
	f := g.prepare(g.client, guestImage(t, "journey", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), g.plain())
	fut, err := f.Start(within(t, time.Minute), []inject.Root{{Payload: order(1, 4000, uint64(time.Millisecond))}}, inject.Options{Hops: 4095})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(pause)
	frozen := g.nodes[2]
	frozen.dead = true
	if err := frozen.child.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lost(t, time.Now(), ended(fut), "n2", "journey")
	g.serves()
	if err := frozen.child.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the thawed element", func() string {
		if s := frozen.report(t).Stats.Sizes; s.Running > 0 || s.Records > 0 {
			return "still holds something"
		}
		return ""
	})
	g.serves()
}

// TestKilledBesideScratch covers: kill -9 of the element where a function is,
// while another element keeps scratch for it: that is freed at once.
func TestKilledBesideScratch(t *testing.T) { overBoth(t, killedBesideScratch) }

func killedBesideScratch(t *testing.T, change func(*settings)) {
	g := newGrid(t, 2, []int{1}, change)
	f := g.prepare(g.client, guestImage(t, "memory", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), g.plain())
	var futures []*inject.Future
	for range 5 {
		fut, err := f.Start(within(t, time.Minute), []inject.Root{{Payload: order(5, 0, uint64(time.Minute))}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	eventually(t, "n0 keeps no scratch", func() string {
		there, here := g.nodes[1].report(t).Stats.Sizes, g.nodes[0].report(t).Stats.Sizes
		if here.Invocations == 5 && there.Running == 5 {
			return ""
		}
		return fmt.Sprintf("it has %+v, the other %+v", here, there)
	})
	g.nodes[1].kill()
	at := time.Now()
	for _, fut := range futures {
		lost(t, at, ended(fut), "n1", "memory")
	}
	g.serves()
	soon(t, at, 20*time.Second) // the invocations' own time is a minute
}

// TestKilledOrigin covers: kill -9 of an origin while its function streams to
// it: the element stops it and holds nothing any more.
func TestKilledOrigin(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	served := g.nodes[0].own
	for range 3 {
		origin, _ := startChild(t, settings{Name: "origin", Token: "alice", Streams: g.nodes[0].addrs[0]})
		eventually(t, "no stream", func() string {
			if served.report().Stats.Sizes.Running > 0 {
				return ""
			}
			return "nothing runs"
		})
		origin.Signal(syscall.SIGKILL)
		start := time.Now()
		g.stopped(start)
		g.serves()
	}
}
