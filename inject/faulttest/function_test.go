package faulttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestBadFunctions covers: traps, endless growth and recursion, stores outside
// the windows and into a read-only one, replies, logs, scratch and payloads
// above their limits. The branch ends with an error that names element,
// function and reason; the element serves on.
func TestBadFunctions(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	limits := withLimits(func(l *abi.Limits) { l.RunTime, l.ReplyBytes = 10*time.Second, 256<<10 })
	f := g.prepare(g.client, guestImage(t, "faults", limits), g.table(1<<14, fabric.RightRead, number))
	for _, c := range []struct {
		name    string
		payload []byte
		is      error
		reason  []string
	}{
		{"unreachable", order(1, 0, 0), nil, []string{"unreachable"}},
		{"division by zero", order(2, 0, 0), nil, []string{"integer divide by zero"}},
		{"load out of bounds", order(3, 0, 0), nil, []string{"out of bounds memory access"}},
		{"growth without end", order(5, 0, 0), nil, []string{"status 16"}}, // pages: 1 MiB
		{"recursion without end", order(6, 0, 0), nil, []string{"out of bounds memory access"}},
		{"store beyond the last window", order(7, 0, 1<<17), nil, []string{"out of bounds memory access"}},
		{"store into a read-only window", order(7, 0, 8), nil, []string{"window 0", "read-only", "byte 8"}},
		{"stores everywhere", order(19, 0, 0), nil, []string{"out of bounds", "scratch"}},
		{"window that is not there", order(7, 5, 0), nil, []string{"status -11"}},
		{"parts without end", order(9, 4096, 0), travel.ErrLimit, []string{"reply_bytes: the limit is 262144"}},
		{"part too large", order(9, 100<<10, 0), travel.ErrLimit, []string{"send more parts"}},
		{"reply too large", order(10, 300<<10, 0), travel.ErrLimit, []string{"raise limits.reply_bytes"}},
		{"scratch without any", order(12, 0, 1), nil, []string{"status -7"}},
		{"payload above the limit, forwarded", order(13, 1, 100<<10), travel.ErrLimit, []string{"raise limits.payload_bytes"}},
		{"payload above a message, forwarded", order(13, 1, 64<<10), travel.ErrLimit, []string{"too large for one message"}},
		{"payload above a message, forked", order(14, 1, 64<<10), travel.ErrLimit, []string{"too large for one message"}},
		{"forward to no element", order(13, 9, 8), nil, []string{"status -1", "forward: there is no element 9, only 2 of them"}},
		{"payload shorter than it wants", nil, nil, []string{"status -1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			_, err := f.Do(within(t, patience), inject.Root{Payload: c.payload}, nil)
			soon(t, start, patience/2)
			says(t, err, append(c.reason, "n0", "faults")...)
			var remote *travel.RemoteError
			if !errors.As(err, &remote) || remote.Element != "n0" || remote.Function != "faults" {
				t.Errorf("%#v", err)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
		})
	}
	g.serves()
	if got, err := f.Do(within(t, patience), inject.Root{Payload: order(0, 1, 2)}, nil); err != nil || string(got) != string(order(0, 1, 2)) {
		t.Errorf("the same function, doing nothing wrong: %q, %v", got, err)
	}
}

// TestReason covers: what a function said last before it failed reaches who called, from the element that the call
// began at and from the one it went on to; of what is long the start, and nothing that a terminal would obey. The
// next call's error does not have it.
func TestReason(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	f := g.prepare(g.client, guestImage(t, "faults", nil), g.plain())
	const trap = 1 << 20
	status := func(st abi.Status) uint64 { return uint64(uint32(st)) }
	for _, c := range []struct {
		name, said string
		status     uint64
		is         error
		text       string
	}{
		{"a refusal", "sum needs a column of numbers", status(abi.ErrArgument), nil, `with status -1: an argument is out of range; it said "sum needs a column of numbers"`},
		{"a line", "no such key\n\x00", status(abi.ErrUnsupported), nil, `-12: this element does not do that; it said "no such key"`},
		{"its own status", "seven", 7, nil, `with status 7: the function's own; it said "seven"`},
		{"nothing", " \n", 7, nil, "with status 7: the function's own"},
		{"a limit of its own", "a key is too long", status(abi.ErrLimit), travel.ErrLimit, `-7: a limit of the function is used up; it said "a key is too long"`},
		{"a trap", "row 3 is odd", trap, nil, `; it said "row 3 is odd"`},
		{"control characters", "\x1b[2J\"quoted\"\u202e\xff", 7, nil, `; it said "\x1b[2J\"quoted\"\u202e\xff"`},
		{"256 bytes", strings.Repeat("x", 256), 7, nil, `; it said "` + strings.Repeat("x", 256) + `"`},
		{"too long", strings.Repeat("x", 3000), 7, nil, `; it said "` + strings.Repeat("x", 256) + `"…`},
		{"too long, cut within a character", strings.Repeat("x", 254) + "€€", 7, nil, `; it said "` + strings.Repeat("x", 254) + `"…`},
	} {
		for at := range uint32(2) {
			t.Run(fmt.Sprint(c.name, " at n", at), func(t *testing.T) {
				_, err := f.Do(within(t, patience), inject.Root{Payload: append(order(24, at, c.status), c.said...)}, nil)
				says(t, err, fmt.Sprint("of faults failed on n", at))
				if err == nil || !strings.HasSuffix(err.Error(), c.text) {
					t.Errorf("%v does not end with %s", err, c.text)
				}
				if c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%v is not %v", err, c.is)
				}
			})
		}
	}
	for range 8 { // it says something and succeeds, then fails without a word
		if _, err := f.Do(within(t, patience), inject.Root{Payload: append(order(24, 0, 0), "all is well"...)}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Do(within(t, patience), inject.Root{Payload: order(99, 0, 0)}, nil); err == nil || strings.Contains(err.Error(), "it said") {
			t.Errorf("a failure of a function that said nothing: %v", err)
		}
	}
}

// TestBadFunctionLimits covers: a run time above its limit, a payload above the
// function's own limit, a log above its limit.
func TestBadFunctionLimits(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, nil)
	f := g.prepare(g.client, guestImage(t, "faults", withLimits(func(l *abi.Limits) {
		l.RunTime, l.PayloadBytes = 20*time.Millisecond, 1000
	})), nil)
	logs := g.prepare(g.client, guestImage(t, "faults", withLimits(func(l *abi.Limits) { l.RunTime, l.LogBytes = patience, 2500 })), nil)
	ctx := within(t, patience)
	_, err := f.Do(ctx, g.at(0, order(4, 0, 0)), nil)
	says(t, err, "n0", "faults", "run_time_ns", "limit is 20000000", "limits.run_time_ns in the manifest")
	if !errors.Is(err, travel.ErrLimit) {
		t.Errorf("%v is not ErrLimit", err)
	}
	_, err = f.Do(ctx, g.at(0, make([]byte, 1001)), nil)
	says(t, err, "n0", "faults", "payload_bytes: 1001 wanted, the limit is 1000")
	if !errors.Is(err, travel.ErrLimit) {
		t.Errorf("%v is not ErrLimit", err)
	}
	if _, err = f.Do(ctx, g.at(0, make([]byte, 64<<10)), nil); !errors.Is(err, travel.ErrTooLarge) {
		t.Errorf("a payload above a message: %v", err)
	}
	if _, err = logs.Do(ctx, g.at(0, order(11, 1000, 0)), nil); err != nil {
		t.Error(err)
	}
	if n := g.nodes[0].own.log.bytes(); n != 2500 {
		t.Errorf("it logged %d bytes, 2500 are allowed", n)
	}
	g.serves()
}

// TestEndlessLoop covers: a loop for ever is stopped by the invocation's
// deadline; while it loops the node answers others, and its garbage collector
// is not held up (calls go on at once in the same process).
func TestEndlessLoop(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	f := g.prepare(g.client, guestImage(t, "faults", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), nil)
	const loops, limit = 3, time.Second
	ctx := within(t, limit)
	start := time.Now()
	var futures []*inject.Future
	for range loops {
		fut, err := f.Start(ctx, []inject.Root{g.at(0, order(4, 0, 0))}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	served := 0
	for ctx.Err() == nil {
		one := within(t, patience)
		if _, err := g.echo.Do(one, g.at(served%2, []byte("x")), nil); err != nil {
			t.Fatalf("call %d beside the loops: %v", served, err)
		}
		served++
		before := time.Now()
		runtime.GC() // the node is in this process
		soon(t, before, atOnce)
	}
	t.Logf("%d calls were answered", served)
	if served == 0 {
		t.Errorf("only %d calls were answered in %v beside the loops", served, limit)
	}
	for _, fut := range futures {
		_, err := fut.Wait(within(t, patience))
		if !errors.Is(err, travel.ErrDeadline) {
			t.Error(err)
		}
		says(t, err, "n0", "faults")
	}
	soon(t, start, limit+atOnce)
	for range 5 {
		_, err := f.Do(within(t, 50*time.Millisecond), g.at(0, order(4, 0, 0)), nil)
		if !errors.Is(err, travel.ErrDeadline) {
			t.Error(err)
		}
		says(t, err, "n0", "faults")
	}
	g.serves()
}

// TestCircle covers: forwards in a circle end at the hop limit.
func TestCircle(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, nil, nil)
	f := g.prepare(g.client, guestImage(t, "journey", nil), g.plain())
	for _, hops := range []uint16{1, 7, 0} {
		fut, err := f.Start(within(t, patience), []inject.Root{{Payload: order(0, 0, 0)}}, inject.Options{Hops: hops})
		if err != nil {
			t.Fatal(err)
		}
		_, err = fut.Wait(within(t, patience))
		if !errors.Is(err, travel.ErrHopLimit) {
			t.Errorf("%d hops: %v", hops, err)
		}
		left := map[uint16]string{1: "n1", 7: "n1", 0: "n1"}[hops] // 1024 % 3 is 1 too
		says(t, err, left, "journey", "hop")
	}
	g.serves()
}

// TestForksWithoutEnd covers: forks without end stop at the invocation's limit
// of branches, or at the run's limit of forks.
func TestForksWithoutEnd(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, nil, nil)
	f := g.prepare(g.client, guestImage(t, "journey", withLimits(func(l *abi.Limits) { l.Forks = 100 })), g.plain())
	fut, err := f.Start(within(t, patience), []inject.Root{{Payload: order(3, 0, 0)}}, inject.Options{Branches: 500})
	if err != nil {
		t.Fatal(err)
	}
	_, err = fut.Wait(within(t, patience))
	if !errors.Is(err, travel.ErrForkLimit) {
		t.Error(err)
	}
	says(t, err, "journey", "500")
	g.serves()
	_, err = f.Do(within(t, patience), inject.Root{Payload: order(4, 0, 0)}, nil)
	says(t, err, "n0", "journey", "forks: the limit is 100", "raise limits.forks", "65536")
	if !errors.Is(err, travel.ErrLimit) {
		t.Errorf("%v is not ErrLimit", err)
	}
	g.serves()
}

// TestAfterForward covers: a branch that has moved on can do nothing more.
func TestAfterForward(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	f := g.prepare(g.client, guestImage(t, "faults", nil), g.plain())
	got, err := f.Do(within(t, patience), inject.Root{Payload: order(20, 1, 0)}, nil)
	if err != nil || string(got) != string(make([]byte, 16)) {
		t.Errorf("%x, %v", got, err)
	}
	g.serves()
}

// TestTooManyInstances covers: more functions at once than the engine has room
// for wait for it, and all complete.
func TestTooManyInstances(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, func(s *settings) { s.Instances = 4 })
	f := g.prepare(g.client, guestImage(t, "faults", nil), nil)
	ctx := within(t, patience)
	var wg sync.WaitGroup
	for range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := f.Do(ctx, g.at(0, order(15, 0, uint64(50*time.Millisecond))), nil); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if n := g.nodes[0].report(t).Stats.Awaited; n == 0 {
		t.Error("nobody waited for room")
	}
	g.serves()
}

// TestCrowdOfAnother covers: while one principal's functions use all the room it can have, and more of them wait, another
// principal's are served; those that wait end as soon as they are canceled.
func TestCrowdOfAnother(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 1, nil, func(s *settings) { s.Instances = 4 })
	loops := g.prepare(g.client, guestImage(t, "faults", withLimits(func(l *abi.Limits) { l.RunTime = time.Minute })), nil)
	bob := g.newClient(settings{Name: "bob's", Token: "bob"})
	to := g.connect(bob, g.nodes[0])
	echo := g.prepare(bob, xrdma.Echo(), nil)
	ctx, cancel := context.WithCancel(within(t, patience))
	defer cancel()
	var futures []*inject.Future
	for range 12 {
		fut, err := loops.Start(ctx, []inject.Root{g.at(0, order(4, 0, 0))}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	eventually(t, "nobody waits for room", func() string {
		if s := g.nodes[0].report(t).Stats.Sizes; s.Running != 3 || s.Awaiting != 9 {
			return fmt.Sprintf("%d run and %d wait", s.Running, s.Awaiting)
		}
		return ""
	})
	for range 20 {
		if got, err := echo.Do(within(t, patience), inject.Root{To: to, Payload: []byte("here")}, nil); err != nil || string(got) != "here" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	cancel()
	for _, fut := range futures {
		if _, err := fut.Wait(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, travel.ErrCanceled) {
			t.Error(err)
		}
		fut.Cancel()
	}
	g.serves()
}

// TestManyAtOnce covers: 64 invocations at once, two clients with the same
// function, futures waited for with Done and select; results come in order and
// complete.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, nil, nil)
	table := g.plain()
	img := guestImage(t, "journey", nil)
	bob := g.newClient(settings{Name: "bob's", Token: "bob"})
	for _, n := range g.nodes {
		g.connect(bob, n)
	}
	const each, parts = 32, 20
	var wg sync.WaitGroup
	for _, client := range []*element{g.client, bob} {
		f := g.prepare(client, img, table)
		for i := range each {
			wg.Add(1)
			go func() {
				defer wg.Done()
				streams(t, f, uint32(i%3), parts)
			}()
		}
	}
	wg.Wait()
	g.serves()
}

// streams runs three branches, each of which sends parts, and checks them.
func streams(t *testing.T, f *inject.Function, first uint32, parts int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var roots []inject.Root
	for i := range uint32(3) {
		roots = append(roots, inject.Root{Element: (first + i) % 3, Payload: order(5, uint32(parts), 0)})
	}
	fut, err := f.Start(ctx, roots, inject.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	select {
	case <-fut.Done():
	case <-ctx.Done():
		t.Error("the future did not end")
		return
	}
	for range 2 { // a second Wait gives the same
		r, err := fut.Wait(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if len(r.Pieces) != 3*(parts+1) || r.Branches != 3 {
			t.Errorf("%d pieces of %d branches", len(r.Pieces), r.Branches)
			return
		}
		for i, p := range r.Pieces {
			branch, index := uint64(i/(parts+1)), uint32(i%(parts+1))
			want := order(index, (first+uint32(branch))%3, 0)[:8]
			last := index == uint32(parts)
			if last {
				want = order(uint32(parts), 0, 0)[:4]
			}
			if p.Branch != branch || p.Index != index || p.Last != last || !strings.HasPrefix(string(p.Data), string(want)) || !last && len(p.Data) != 4096 {
				t.Errorf("piece %d: branch %d, index %d, last %v, %d bytes, begins %x", i, p.Branch, p.Index, p.Last, len(p.Data), p.Data[:8])
				return
			}
		}
	}
}

// TestChangedFunction covers: a function of the same name and other content is
// another function, and runs everywhere from the next call on.
func TestChangedFunction(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 3, nil, nil)
	for round, guest := range []string{"value1", "value2", "value1"} {
		f := g.prepare(g.client, guestImage(t, guest, nil), nil)
		want := fmt.Sprintf("%c\x00\x00\x00", guest[5]-'0')
		for i := range g.nodes {
			got, err := f.Do(within(t, patience), g.at(i, nil), nil)
			if err != nil || string(got) != want {
				t.Errorf("round %d at n%d: %q, %v; want %q", round, i, got, err, want)
			}
		}
		if f.Image().Name() != "value" {
			t.Errorf("the function is called %s", f.Image().Name())
		}
	}
	g.serves()
}

// TestWritableWindow covers: what a function may write it writes, and only
// there: the next node's window is untouched.
func TestWritableWindow(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, nil)
	table := g.table(1<<13, fabric.RightRead|fabric.RightWrite|fabric.RightAtomic, number)
	img := guestImage(t, "faults", func(m *image.Manifest) { m.Windows = []image.Window{{Name: "words", Writable: true}} })
	f := g.prepare(g.client, img, table)
	ctx := within(t, patience)
	if _, err := f.Do(ctx, inject.Root{Payload: order(7, 0, 8)}, nil); err != nil {
		t.Fatal(err)
	}
	for e, want := range []byte{0xee, 1} {
		got, err := f.Do(ctx, inject.Root{Element: uint32(e), Payload: order(8, 0, 8)}, nil)
		if e == 1 {
			want = byte((1<<13 + 1) & 0xff)
		}
		if err != nil || got[0] != want {
			t.Errorf("n%d: %x, %v; want %x", e, got, err, want)
		}
	}
	_, err := f.Do(ctx, inject.Root{Payload: order(7, 0, 1<<16)}, nil)
	says(t, err, "n0", "faults", "out of bounds memory access")
	g.serves()
}
