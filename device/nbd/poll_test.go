package nbd

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

func noise(seed uint64, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(p)
	return p
}

// TestPieces: requests of more than a command carries, sent in pieces of any size, are whole; so are those that a client sends with its last option.
func TestPieces(t *testing.T) {
	d := newMemory(t, 1<<20)
	dial, _, _ := serve(t, d)
	want := noise(1, 1<<20)
	c := dial()
	c.recv(18)
	early := append(be.AppendUint32(nil, flagFixed|flagNoZeroes), optionOf(optExportName, nil)...)
	c.send(append(append(early, requestOf(request{kind: cmdWrite, handle: 7, size: 700 << 10})...), want[:100]...))
	c.recv(10)
	for rest, n := want[100:700<<10], 1; len(rest) > 0; n = 3*n + 1 {
		k := min(n, len(rest))
		c.send(rest[:k])
		rest = rest[k:]
	}
	if b := c.recv(16); be.Uint32(b[4:]) != 0 || be.Uint64(b[8:]) != 7 {
		t.Fatalf("a reply to a write in pieces: %x", b)
	}
	if errno, _ := dial().start().ask(request{kind: cmdWrite, flags: cmdFlagFUA, handle: 1, off: 700 << 10, size: 324 << 10}, want[700<<10:]); errno != 0 {
		t.Errorf("a large write: %d", errno)
	}
	if errno, got := c.ask(request{kind: cmdRead, handle: 2, size: 1 << 20}, nil); errno != 0 || !bytes.Equal(got, want) {
		t.Errorf("a large read: %d", errno)
	}
	d.do(func() { d.flushes = 0 })
	if errno, _ := c.ask(request{kind: cmdTrim, flags: cmdFlagFUA, handle: 3, size: 200 << 10}, nil); errno != 0 {
		t.Errorf("a large trim: %d", errno)
	}
	d.do(func() {
		if d.flushes != 1 {
			t.Errorf("%d flushes after a durable trim", d.flushes)
		}
	})
	if errno, _ := c.ask(request{kind: cmdZeroes, handle: 4, off: 200 << 10, size: 200 << 10}, nil); errno != 0 {
		t.Errorf("many zeros: %d", errno)
	}
	clear(want[:400<<10])
	if errno, got := c.ask(request{kind: cmdRead, handle: 5, size: 1 << 20}, nil); errno != 0 || !bytes.Equal(got, want) {
		t.Errorf("a read after trim and zeros: %d", errno)
	}
}

// TestSlowClient: a client that asks for much and reads nothing waits, and costs others nothing; what it asked for is whole when it reads.
func TestSlowClient(t *testing.T) {
	d := newMemory(t, 1<<20)
	copy(d.mem, noise(2, 1<<20))
	dial, _, _ := serve(t, d)
	slow := dial().start()
	const reads = 50
	for i := range reads {
		slow.send(requestOf(request{kind: cmdRead, handle: uint64(i), size: 1 << 20}))
	}
	half := dial().start() // it begins a write, and does not go on
	half.send(append(requestOf(request{kind: cmdWrite, handle: 1, size: 1 << 20}), 1))
	c := dial().start()
	for i := range uint64(200) {
		off := i % 16 * 4096
		if errno, got := c.ask(request{kind: cmdRead, handle: i, off: off, size: 4096}, nil); errno != 0 || !bytes.Equal(got, d.mem[off:off+4096]) {
			t.Fatalf("a read beside a slow client: %d", errno)
		}
	}
	d.do(func() {
		const most = (2*maxBytes + 2*MaxRequestBytes) / memoryBuffer // kept, and in the socket
		if n := d.sent - 200; n > most {
			t.Errorf("%d commands for a client that reads nothing, want at most %d", n, most)
		}
	})
	for range reads {
		b := slow.recv(16)
		if be.Uint32(b[4:]) != 0 || !bytes.Equal(slow.recv(1<<20), d.mem) {
			t.Fatalf("an answer that waited: %x", b)
		}
	}
}

// TestNoRoom: requests wait while the connection to the lender has no room, and while all slots are taken, each in turn.
func TestNoRoom(t *testing.T) {
	d := newMemory(t, 1<<20)
	copy(d.mem, noise(3, 1<<20))
	d.full = true
	dial, _, _ := serve(t, d)
	var clients []*client
	for range 3 {
		c := dial().start()
		clients = append(clients, c)
		for i := range uint64(20) {
			c.send(requestOf(request{kind: cmdRead, handle: i, off: i << 12, size: 4096}))
		}
		c.send(append(requestOf(request{kind: cmdWrite, handle: 20, off: 512 << 10, size: 4096}), d.mem[512<<10:][:4096]...))
	}
	d.do(func() { d.full, d.held = false, true })
	d.eventually(t, "all slots are taken", func() bool { return len(d.free) == 0 })
	d.do(func() { d.held = false })
	for _, c := range clients {
		for range 21 {
			b := c.recv(16)
			h := be.Uint64(b[8:])
			if be.Uint32(b[4:]) != 0 || h < 20 && !bytes.Equal(c.recv(4096), d.mem[h<<12:][:4096]) {
				t.Fatalf("an answer that waited: %x", b)
			}
		}
	}
}

// TestLeaves: a client that says that it leaves, or sends no more, has the answers to what it asked first; one that is gone holds up nothing.
func TestLeaves(t *testing.T) {
	d := newMemory(t, 1<<20)
	dial, s, _ := serve(t, d)
	d.do(func() { d.held = true })
	var clients []*client
	for i := range 3 {
		c := dial().start()
		clients = append(clients, c)
		c.send(requestOf(request{kind: cmdFlush, handle: 9}))
		d.eventually(t, "the flush is under way", func() bool { return d.sent == i+1 })
	}
	clients[0].send(requestOf(request{kind: cmdDisconnect}))
	clients[1].Conn.(interface{ CloseWrite() error }).CloseWrite()
	clients[2].Close()
	d.do(func() { d.held = false })
	d.el.Wake()
	for i, c := range clients[:2] {
		if b, err := io.ReadAll(c); err != nil || len(b) != 16 || be.Uint64(b[8:]) != 9 {
			t.Errorf("client %d has left, and is answered %x, %v", i, b, err)
		}
	}
	d.eventually(t, "all slots are free", func() bool { return len(d.free) == memorySlots })
	s.Close()
	if n := len(s.conns); n > 0 {
		t.Errorf("%d connections are left", n)
	}
}

// eventually waits for a state of the drive.
func (d *memory) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		is := false
		if d.do(func() { is = ok() }); is {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}
