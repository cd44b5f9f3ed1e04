package shm

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/memfd"
)

// kit makes descriptors for a hostile Start and closes its own in the end.
type kit struct{ testing.TB }

func (k kit) keep(fd int, err error) int {
	k.Helper()
	must(k.TB, err)
	k.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (k kit) memfd(size int64, seals int) int {
	fd := k.keep(unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))
	must(k.TB, unix.Ftruncate(fd, size))
	if seals != 0 {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		must(k.TB, err)
	}
	return fd
}

func (k kit) link() int  { return k.memfd(int64(smallRing.size()), unix.F_SEAL_SHRINK|unix.F_SEAL_GROW) }
func (k kit) board() int { return k.memfd(boardBytes, unix.F_SEAL_SHRINK) }
func (k kit) bell() int  { return k.keep(unix.Eventfd(0, unix.EFD_CLOEXEC)) }

func (k kit) file() int {
	f, err := os.CreateTemp(k.TempDir(), "")
	must(k.TB, err)
	must(k.TB, f.Truncate(1<<20))
	defer f.Close()
	return k.keep(unix.Dup(int(f.Fd())))
}

func (k kit) device() int { return k.keep(unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)) }

func (k kit) pipe() int {
	var p [2]int
	must(k.TB, unix.Pipe2(p[:], unix.O_CLOEXEC))
	k.keep(p[0], nil)
	return k.keep(p[1], nil)
}

// edited is an initiator's record with one thing changed.
func edited(edit func(b []byte)) []byte {
	b := setup{role: roleInitiator, geo: smallRing, link: 7}.encode()
	if edit != nil {
		edit(b)
	}
	return b
}

// hostile is a Start with something wrong.
type hostile struct {
	name   string
	record []byte
	fds    func(k kit) []int
	want   string // in the error
}

func hostileInitiators() []hostile {
	const shrink = unix.F_SEAL_SHRINK
	size := int64(smallRing.size())
	return []hostile{
		{"silence", nil, nil, "timeout"},
		{"half a record", edited(nil)[:100], nil, "hung up after 100"},
		{"http", append([]byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, setupBytes)...), nil, "begins with"},
		{"another version", edited(func(b []byte) { b[4] = 9 }), nil, "same release"},
		{"an acceptor", edited(func(b []byte) { b[6] = roleAcceptor }), nil, "role 2"},
		{"too many slots", edited(func(b []byte) { b[11] = 0x80 }), nil, "out of range"},
		{"slots no power of two", edited(func(b []byte) { b[8] = 17 }), nil, "power of two"},
		{"bit outside", edited(func(b []byte) { b[27] = 1 }), nil, "bit"},
		{"long reason", edited(func(b []byte) { b[33] = 1 }), nil, "reason"},
		{"refusal", setup{role: roleInitiator, reason: "not today"}.encode(), nil, `refused the link: "not today"`},
		{"no descriptors", edited(nil), nil, "0 descriptors"},
		{"two descriptors", edited(nil), func(k kit) []int { return []int{k.link(), k.bell()} }, "2 descriptors"},
		{"four descriptors", edited(nil), func(k kit) []int { return []int{k.link(), k.bell(), k.board(), k.bell()} }, "4 descriptors"},
		{"ten descriptors", edited(nil), func(k kit) []int {
			b := k.bell()
			return []int{k.link(), b, k.board(), b, b, b, b, b, b, b}
		}, "too many descriptors"},
		{"memory is a file", edited(nil), func(k kit) []int { return []int{k.file(), k.bell(), k.board()} }, "link memory"},
		{"memory is a device", edited(nil), func(k kit) []int { return []int{k.device(), k.bell(), k.board()} }, "link memory"},
		{"memory is a pipe", edited(nil), func(k kit) []int { return []int{k.pipe(), k.bell(), k.board()} }, "link memory"},
		{"memory not sealed", edited(nil), func(k kit) []int { return []int{k.memfd(size, 0), k.bell(), k.board()} }, "not sealed"},
		{"memory too small", edited(nil), func(k kit) []int { return []int{k.memfd(size-4096, shrink), k.bell(), k.board()} }, "promised"},
		{"memory for reading", edited(nil), func(k kit) []int {
			return []int{k.memfd(size, shrink|unix.F_SEAL_FUTURE_WRITE), k.bell(), k.board()}
		}, "mmap"},
		{"doorbell is a pipe", edited(nil), func(k kit) []int { return []int{k.link(), k.pipe(), k.board()} }, "no eventfd"},
		{"doorbell is a file", edited(nil), func(k kit) []int { return []int{k.link(), k.file(), k.board()} }, "no eventfd"},
		{"board not sealed", edited(nil), func(k kit) []int { return []int{k.link(), k.bell(), k.memfd(boardBytes, 0)} }, "not sealed"},
		{"board too small", edited(nil), func(k kit) []int { return []int{k.link(), k.bell(), k.memfd(100, shrink)} }, "promised"},
		{"board is a doorbell", edited(nil), func(k kit) []int { return []int{k.link(), k.bell(), k.bell()} }, "board"},
	}
}

// TestHostileInitiator starts links with everything wrong in turn. The accepting
// side says what, and keeps no descriptor.
func TestHostileInitiator(t *testing.T) {
	for _, tt := range hostileInitiators() {
		t.Run(tt.name, func(t *testing.T) {
			k := kit{t}
			var fds []int
			if tt.fds != nil {
				fds = tt.fds(k)
			}
			tr := newTransport(t, Config{})
			addr := uniqueName()
			ch := make(chan error)
			limit := patience
			if tt.record == nil {
				limit = 50 * time.Millisecond
			}
			_, err := tr.Listen(addr, func(p fabric.Pending) {
				must(t, p.SetDeadline(time.Now().Add(limit)))
				_, err := p.Start(&recorder{}, false)
				ch <- err
			})
			must(t, err)
			conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: addr, Net: "unix"})
			must(t, err)
			before := openFDs(t)
			if len(tt.record) > 0 {
				var rights []byte
				if len(fds) > 0 {
					rights = unix.UnixRights(fds...)
				}
				_, _, err := conn.WriteMsgUnix(tt.record, rights, nil)
				must(t, err)
				if len(tt.record) < setupBytes {
					must(t, conn.CloseWrite())
				}
			}
			err = <-ch
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Start: %v, want something about %q", err, tt.want)
			}
			// The board and its eventfd came, the accepted socket may be gone.
			if n := openFDs(t); n > before+2 {
				t.Errorf("%d descriptors open, %d before", n, before)
			}
			conn.Close()
			if len(tr.free) != len(tr.links) {
				t.Error("a failed Start keeps its index")
			}
		})
	}
}

// TestHostileAcceptor is the same for the side that dials.
func TestHostileAcceptor(t *testing.T) {
	good := setup{role: roleAcceptor, geo: smallRing}.encode()
	tests := []hostile{
		{"hangs up", nil, nil, "hung up"},
		{"refusal", setup{role: roleAcceptor, reason: "no room"}.encode(), nil, `refused the link: "no room"`},
		{"an initiator", edited(nil), nil, "role 1"},
		{"no descriptors", good, nil, "0 descriptors"},
		{"board is a file", good, func(k kit) []int { return []int{k.bell(), k.file()} }, "board"},
		{"doorbell is a pipe", good, func(k kit) []int { return []int{k.pipe(), k.board()} }, "no eventfd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addr := uniqueName()
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
			must(t, err)
			defer ln.Close()
			go func() {
				conn, err := ln.AcceptUnix()
				if err != nil {
					return
				}
				defer conn.Close()
				_, fds, _ := recvSetup(conn, roleInitiator, 3)
				closeAll(fds)
				var rights []byte
				if tt.fds != nil {
					rights = unix.UnixRights(tt.fds(kit{t})...)
				}
				if tt.record != nil {
					_, _, _ = conn.WriteMsgUnix(tt.record, rights, nil)
				}
			}()
			if _, err = dial(newTransport(t, Config{}), addr, &recorder{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Start: %v, want something about %q", err, tt.want)
			}
		})
	}
}

// TestRefusalBeforeTheRecord is refused by a peer that hangs up before this side
// has sent anything: the reason arrives all the same.
func TestRefusalBeforeTheRecord(t *testing.T) {
	addr := uniqueName()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	must(t, err)
	defer ln.Close()
	p, err := newTransport(t, Config{}).Dial(context.Background(), addr)
	must(t, err)
	conn, err := ln.AcceptUnix()
	must(t, err)
	must(t, sendSetup(conn, setup{role: roleAcceptor, reason: "no room"}))
	must(t, conn.Close())
	if _, err := p.Start(&recorder{}, true); err == nil || !strings.Contains(err.Error(), `refused the link: "no room"`) {
		t.Errorf("Start: %v", err)
	}
}

// TestHugePagesAreRefused passes memory that can run out after it was mapped.
func TestHugePagesAreRefused(t *testing.T) {
	fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Skipf("this kernel makes no memfd of huge pages: %v", err)
	}
	defer unix.Close(fd)
	if mem, err := mapPeer(fd, boardBytes, "board"); err == nil || !strings.Contains(err.Error(), "ordinary pages") {
		t.Errorf("mapped %d bytes, %v", len(mem), err)
	}
}

// TestHostileSocket writes what does not belong on the socket of a running link.
func TestHostileSocket(t *testing.T) {
	rec := fdRecord(1)
	bad := fdRecord(1)
	bad[5] = 1
	tests := []struct {
		name string
		body []byte
		fds  int
		want string
	}{
		{"bytes alone", []byte("hello"), 0, "0 descriptors"},
		{"record alone", rec[:], 0, "0 descriptors"},
		{"two descriptors", rec[:], 2, "2 descriptors"},
		{"a hundred descriptors", rec[:], 100, "descriptors"},
		{"short record", rec[:8], 1, "no descriptor record"},
		{"another record", bad[:], 1, "no descriptor record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t, Config{})
			before := openFDs(t)
			fds := make([]int, tt.fds)
			must(t, unix.Sendmsg(b.l.fd, tt.body, unix.UnixRights(fds...), nil, 0))
			until(t, "Lost", func() bool { return a.r.lost != nil }, a.t)
			if !errors.Is(a.r.lost, ErrProtocol) || !strings.Contains(a.r.lost.Error(), tt.want) {
				t.Errorf("Lost(%v), want something about %q", a.r.lost, tt.want)
			}
			if n := openFDs(t); n >= before {
				t.Errorf("%d descriptors open, %d before the link went", n, before)
			}
		})
	}
}

// TestBlockingDoorbell clears the doorbell's O_NONBLOCK, as any peer can.
func TestBlockingDoorbell(t *testing.T) {
	a, b := pair(t, Config{})
	must(t, unix.SetNonblock(b.l.peer.fd, false)) // a's doorbell, the same open file
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			a.l.own.hush()
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("an empty doorbell blocks its owner")
	}
	must(t, b.l.Send(testID, fabric.Normal, nil, nil))
	until(t, "the frame", func() bool { return a.r.frames == 1 }, a.t)
}

// TestMaxLinks refuses a link too many, on either side, and says so on both.
func TestMaxLinks(t *testing.T) {
	a := &end{t: newTransport(t, Config{MaxLinks: 2}), r: &recorder{}}
	b := &end{t: newTransport(t, Config{}), r: &recorder{}}
	join(t, a, b)
	first := b.l
	join(t, a, b)
	addr := uniqueName()
	ch, err := listen(a.t, addr, func() fabric.Receiver { return a.r })
	must(t, err)
	_, err = dial(b.t, addr, &recorder{})
	if err == nil || !strings.Contains(err.Error(), "MaxLinks") {
		t.Errorf("the dialling side heard %v", err)
	}
	if s := <-ch; s.err == nil || !strings.Contains(s.err.Error(), "MaxLinks") {
		t.Errorf("the accepting side heard %v", s.err)
	}
	must(t, first.Close())
	until(t, "Lost", func() bool { return a.r.lost != nil }, a.t, b.t)
	a.r.lost = nil
	join(t, a, b)
}

// TestStartAgainstClose closes the transport while Starts are under way.
func TestStartAgainstClose(t *testing.T) {
	for i := range 30 {
		before := openFDs(t)
		a, err := New(Config{})
		must(t, err)
		b := newTransport(t, Config{})
		addr := uniqueName()
		accepted := make(chan struct{}, 8)
		_, err = a.Listen(addr, func(p fabric.Pending) {
			_, _ = p.Start(&recorder{}, false)
			p.Close()
			accepted <- struct{}{}
		})
		must(t, err)
		dialled := make(chan error, 4)
		for range cap(dialled) {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				p, err := b.Dial(ctx, addr)
				if err == nil {
					_ = p.SetDeadline(time.Now().Add(patience))
					_, err = p.Start(&recorder{}, true)
				}
				dialled <- err
			}()
		}
		time.Sleep(time.Duration(i*20) * time.Microsecond)
		must(t, a.Close())
		for range cap(dialled) {
			<-dialled
		}
		must(t, b.Close())
		// There may be fewer: what an earlier test closed may have been open still.
		for end := time.Now().Add(patience); openFDs(t) > before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d descriptors open, %d before", openFDs(t), before)
			}
		}
	}
}

// TestGeometry maps both directions of every size without overlap.
func TestGeometry(t *testing.T) {
	for _, g := range []geometry{smallRing, {DefaultSlots, DefaultDataBytes}, {maxSlots, minDataBytes}} {
		f, err := memfd.Create("geometry", int64(g.size()), false)
		must(t, err)
		for dir := range 2 {
			h := g.cut(f.Bytes(), dir)
			for i := range h.slots {
				h.slots[i].word.Add(1)
				h.slots[i].body[inlineBytes-1]++
			}
			for i := range h.data {
				h.data[i]++
			}
			h.ctl.attention.Add(1)
			h.ctl.usedSlots.Add(1)
			h.ctl.bye.Add(1)
		}
		for dir := range 2 {
			h := g.cut(f.Bytes(), dir)
			for i := range h.slots {
				if h.slots[i].word.Load() != 1 || h.slots[i].body[inlineBytes-1] != 1 {
					t.Fatalf("%+v: slot %d of direction %d overlaps something", g, i, dir)
				}
			}
			for i := range h.data {
				if h.data[i] != 1 {
					t.Fatalf("%+v: data byte %d of direction %d overlaps something", g, i, dir)
				}
			}
			if h.ctl.attention.Load() != 1 || h.ctl.usedSlots.Load() != 1 || h.ctl.bye.Load() != 1 {
				t.Fatalf("%+v: controls overlap", g)
			}
		}
		f.Close()
	}
}
