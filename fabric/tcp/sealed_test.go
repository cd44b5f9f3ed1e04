package tcp

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// sealedPipe is a link with TLS, on the accepting side, whose peer is a TLS
// client of crypto/tls. What that writes is at hand in sent, and reaches the link by way of raw only.
type sealedPipe struct {
	tr   *Transport
	l    *link
	r    fabric.Receiver
	peer *tls.Conn
	sent *capture
	raw  int // the socket's other end, non-blocking
}

// capture keeps what is written instead of sending it, once it is told to.
type capture struct {
	net.Conn
	on bool
	b  []byte
}

func (c *capture) Write(p []byte) (int, error) {
	if c.on {
		c.b = append(c.b, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *capture) take() []byte {
	b := c.b
	c.b = nil
	return b
}

// newSealedPipe makes one; first is said by the peer before there is a link, together with the handshake's end.
func newSealedPipe(t testing.TB, cfg Config, r fabric.Receiver, first []byte, change ...func(*tls.Config)) *sealedPipe {
	t.Helper()
	a := newAuthority(t, "ca")
	h := a.holder(t, "here")
	cfg.TLS = h
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	linked := make(chan *link, 1)
	hello := make([]byte, 5)
	addr, err := tr.Listen("127.0.0.1:0", func(p fabric.Pending) {
		defer close(linked)
		if n, err := p.Read(hello); err != nil || string(hello[:n]) != "hello" {
			t.Errorf("the first bytes: %q, %v", hello[:n], err)
			return
		}
		l, err := p.Start(r, false)
		if err != nil {
			t.Error(err)
			return
		}
		linked <- l.(*link)
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	own := a.issue(t, "there")
	p := &sealedPipe{tr: tr, r: r, sent: &capture{Conn: c}}
	peer := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: h.roots, ServerName: "127.0.0.1",
		NextProtos: []string{protocol}, Certificates: []tls.Certificate{own}, DynamicRecordSizingDisabled: true}
	for _, c := range change {
		c(peer)
	}
	p.peer = tls.Client(p.sent, peer)
	if _, err := p.peer.Write(append([]byte("hello"), first...)); err != nil {
		t.Fatal(err)
	}
	if p.l = <-linked; p.l == nil {
		t.FailNow()
	}
	p.sent.on = true
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	p.raw = int(f.Fd())
	t.Cleanup(func() { f.Close(); c.Close() })
	if err := unix.SetNonblock(p.raw, true); err != nil {
		t.Fatal(err)
	}
	return p
}

// seal is what the peer's TLS makes of plain bytes.
func (p *sealedPipe) seal(t testing.TB, plain []byte) []byte {
	t.Helper()
	if _, err := p.peer.Write(plain); err != nil {
		t.Fatal(err)
	}
	return p.sent.take()
}

// deliver writes bytes to the socket and has the link take them.
func (p *sealedPipe) deliver(t testing.TB, b []byte, piece func(i int) int) {
	t.Helper()
	for i := 0; len(b) > 0; i++ {
		n, err := unix.Write(p.raw, b[:min(len(b), piece(i))])
		if err != nil && err != unix.EAGAIN && err != unix.EPIPE && err != unix.ECONNRESET {
			t.Fatal(err)
		}
		if err == unix.EPIPE || err == unix.ECONNRESET {
			return
		}
		b = b[max(n, 0):]
		for range 4 {
			p.tr.Poll(1+i%64, fabric.Turn{})
		}
	}
	p.settle()
}

// settle polls until nothing comes any more.
func (p *sealedPipe) settle() {
	for quiet := 0; quiet < 20; quiet++ {
		if p.tr.Poll(64, fabric.Turn{}) > 0 || p.tr.Arm() {
			quiet = 0
			continue
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func whole(int) int { return 60_000 }

// until polls until the link is lost.
func (p *sealedPipe) untilLost(t testing.TB, r *recorder) error {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		p.tr.Poll(64, fabric.Turn{})
		if r.lost != nil {
			return r.lost
		}
	}
	t.Fatal("the link's end was not noticed")
	return nil
}

// TestSealedStream: what comes out is what a plain link gives, however records
// and reads are cut.
func TestSealedStream(t *testing.T) {
	stream := streams()[0]
	want := play(t, stream, nil)
	for _, c := range []struct {
		name         string
		record, read func(i int) int
	}{
		{"whole", func(int) int { return 1 << 20 }, whole},
		{"small records", func(i int) int { return 1 + i%700 }, whole},
		{"odd reads", func(int) int { return 1 << 20 }, func(i int) int { return 1 + i*37%5000 }},
		{"both", func(i int) int { return 1 + i*101%9000 }, func(i int) int { return 1 + i*59%20_000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{}
			first := stream[:40]
			p := newSealedPipe(t, Config{}, r, first) // with HELLO's last record
			var sealed []byte
			for i, rest := 0, stream[40:]; len(rest) > 0; i++ {
				n := min(len(rest), c.record(i))
				sealed = append(sealed, p.seal(t, rest[:n])...)
				rest = rest[n:]
			}
			p.peer.CloseWrite()
			p.deliver(t, append(sealed, p.sent.take()...), c.read)
			if err := p.untilLost(t, r); !errors.Is(err, errEOF) {
				t.Errorf("after the peer's goodbye: %v", err)
			}
			if len(r.log) != len(want.log) {
				t.Fatalf("%d frames, want %d", len(r.log), len(want.log))
			}
			for i := range r.log {
				if r.log[i] != want.log[i] {
					t.Fatalf("frame %d is %.80q, want %.80q", i, r.log[i], want.log[i])
				}
			}
		})
	}
}

// TestSealedFirstFrames: frames that came in one record with the end of HELLO
// are delivered without another byte from the peer.
func TestSealedFirstFrames(t *testing.T) {
	r := &recorder{}
	p := newSealedPipe(t, Config{}, r, append(wire(100, []byte("x")), wire(101, nil)...))
	p.settle()
	if got := strings.Join(r.log, ","); got != "100 78,101 " {
		t.Errorf("delivered %q", got)
	}
}

// FuzzSealedStream: whatever the plain bytes are, and however records and reads
// are cut, a link with TLS delivers what one without does, and ends for the same reason.
func FuzzSealedStream(f *testing.F) {
	for _, s := range streams() {
		if len(s) > 0 && len(s) < 20_000 {
			f.Add(s, []byte{5, 0, 90})
		}
	}
	f.Fuzz(func(t *testing.T, stream, cuts []byte) {
		want := play(t, stream, nil)
		cut := func(i, of int) int { return 1 + int(append(cuts, 255)[i%(len(cuts)+1)])*of }
		r := &recorder{}
		p := newSealedPipe(t, Config{}, r, nil)
		var sealed []byte
		for i := 0; len(stream) > 0; i++ {
			n := min(len(stream), cut(i, 97))
			sealed = append(sealed, p.seal(t, stream[:n])...)
			stream = stream[n:]
		}
		p.peer.CloseWrite()
		p.deliver(t, append(sealed, p.sent.take()...), func(i int) int { return cut(i, 89) })
		if err := p.untilLost(t, r); err.Error() != want.lost.Error() {
			t.Errorf("lost because %v, without TLS because %v", err, want.lost)
		}
		if got := strings.Join(r.log, "\n"); got != strings.Join(want.log, "\n") {
			t.Errorf("delivered %.200q, without TLS %.200q", got, strings.Join(want.log, "\n"))
		}
	})
}

// three are frames of which the second is worth altering.
func three(p *sealedPipe, t testing.TB) [3][]byte {
	return [3][]byte{p.seal(t, wire(100, []byte("pay 10 to ann"))), p.seal(t, wire(101, []byte("pay 20 to bob"))), p.seal(t, wire(102, nil))}
}

// TestFlippedBit: whichever bit is altered on the way, the link ends, and
// nothing of the altered record, nor what follows, is delivered.
func TestFlippedBit(t *testing.T) {
	for at := range sealBytes + headerBytes + 13 {
		r := &recorder{}
		p := newSealedPipe(t, Config{}, r, nil)
		f := three(p, t)
		f[1][at] ^= 1 << (at % 8)
		var whole2 []byte
		for _, b := range f {
			whole2 = append(whole2, b...)
		}
		whole2 = append(whole2, make([]byte, maxRecordBytes)...) // a header that promises more gets it
		p.deliver(t, whole2, whole)
		err := p.untilLost(t, r)
		if len(r.log) != 1 || !strings.HasPrefix(r.log[0], "100 ") {
			t.Fatalf("byte %d altered: delivered %q", at, r.log)
		}
		if err == errEOF || err == errCut {
			t.Errorf("byte %d altered: lost because %v", at, err)
		}
	}
}

// TestReplayedRecord: a record that is sent again, dropped, or put in another
// order ends the link.
func TestReplayedRecord(t *testing.T) {
	for name, order := range map[string][]int{"again": {0, 0, 1}, "dropped": {0, 2}, "swapped": {0, 2, 1}, "from the start": {0, 1, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			p := newSealedPipe(t, Config{}, r, nil)
			f := three(p, t)
			good := 0
			for i, k := range order {
				if good == i && k == i {
					good++
				}
				p.deliver(t, f[k], whole)
			}
			err := p.untilLost(t, r)
			if len(r.log) != good {
				t.Errorf("delivered %q, %d were genuine", r.log, good)
			}
			if !strings.Contains(err.Error(), "TLS") {
				t.Errorf("lost because %v", err)
			}
		})
	}
}

// TestReplayedConnection: what was recorded of one connection is worth nothing on another.
func TestReplayedConnection(t *testing.T) {
	old := newSealedPipe(t, Config{}, &recorder{}, nil)
	recorded := old.seal(t, wire(100, []byte("pay 10 to ann")))
	r := &recorder{}
	p := newSealedPipe(t, Config{}, r, nil)
	p.deliver(t, recorded, whole)
	if err := p.untilLost(t, r); len(r.log) != 0 || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("delivered %q, lost because %v", r.log, err)
	}
}

// TestTruncated: an end without TLS's goodbye, wherever it comes, is not taken for one that the
// peer wanted, and half a frame is never delivered.
func TestTruncated(t *testing.T) {
	probe := newSealedPipe(t, Config{}, &recorder{}, nil)
	frames := three(probe, t)
	var ends []int
	total := 0
	for _, f := range frames {
		total += len(f)
		ends = append(ends, total)
	}
	for cut := 0; cut <= total; cut += 7 {
		t.Run(fmt.Sprint(cut), func(t *testing.T) { truncate(t, cut, ends) })
	}
	for _, cut := range ends {
		t.Run(fmt.Sprint("between records ", cut), func(t *testing.T) { truncate(t, cut, ends) })
	}
}

func truncate(t *testing.T, cut int, ends []int) {
	r := &recorder{}
	p := newSealedPipe(t, Config{}, r, nil)
	f := three(p, t)
	p.deliver(t, bytes.Join(f[:], nil)[:cut], whole)
	if err := unix.Shutdown(p.raw, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	err := p.untilLost(t, r)
	if !errors.Is(err, errCut) {
		t.Errorf("lost because %v", err)
	}
	want := 0
	for _, e := range ends {
		if e <= cut {
			want++
		}
	}
	if len(r.log) != want {
		t.Errorf("delivered %q, want %d frames", r.log, want)
	}
}

// TestPlainBytes: frames that are not sealed do not get in.
func TestPlainBytes(t *testing.T) {
	r := &recorder{}
	p := newSealedPipe(t, Config{}, r, nil)
	p.deliver(t, bytes.Repeat(wire(100, []byte("x")), 5000), whole)
	if err := p.untilLost(t, r); len(r.log) != 0 || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("delivered %q, lost because %v", r.log, err)
	}
}

// TestSealedBounds: as TestSendBounds, with what the peer opens in the end.
func TestSealedBounds(t *testing.T) {
	var w writable
	p := newSealedPipe(t, Config{OutBytes: 128 << 10}, &w, nil)
	var want []byte
	counts := [2]int{}
	for class := range counts {
		var err error
		for i := 0; err == nil; i++ {
			n := [][2]int{{0, 0}, {10, 100}, {0, 30_000}, {30_000, 0}, {9000, 9000}, {0, 65_536}, {8188, 0}, {8189, 1}, {65_000, 600}}[i%9]
			h, b := fill(n[0], byte(len(want))), fill(n[1], byte(len(want)+1))
			if err = p.l.Send(100, fabric.Class(class), h, b); err == nil {
				counts[class]++
				want = append(want, wire(100, append(h, b...))...)
			}
		}
		if !errors.Is(err, fabric.ErrLinkFull) {
			t.Fatal(err)
		}
	}
	if kept := p.l.sec.wire.waiting(); kept > 2*p.tr.cfg.OutBytes || counts[1] == 0 {
		t.Errorf("%d bytes are kept; %d reserved frames went in", kept, counts[1])
	}
	got := make([]byte, 0, len(want))
	done := make(chan error, 1)
	go func() {
		buf := make([]byte, 1<<16)
		for len(got) < len(want) {
			n, err := p.peer.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		p.tr.Poll(64, fabric.Turn{})
		select {
		case err := <-done:
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("the bytes of the frames differ, or %v", err)
			}
			if w.n == 0 || p.l.sec.wire.waiting() != 0 || cap(p.l.sec.wire.out) != smallOutBytes {
				t.Errorf("Writable %d times, %d bytes wait, in %d", w.n, p.l.sec.wire.waiting(), cap(p.l.sec.wire.out))
			}
			return
		default:
		}
	}
}

// TestSealedAllocations: a small Send allocates nothing; a small frame received
// costs what crypto/tls takes for a record, one small reader.
func TestSealedAllocations(t *testing.T) {
	var n counter
	p := newSealedPipe(t, Config{}, &n, nil)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			if _, err := p.peer.Read(buf); err != nil {
				return
			}
		}
	}()
	body := make([]byte, 8)
	send := func() {
		if err := p.l.Send(100, fabric.Normal, nil, body); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if got := testing.AllocsPerRun(500, send); got > pooledAllocs {
		t.Errorf("a Send of %d bytes allocates %v times", len(body), got)
	}
	const frames = 501
	var sealed [frames + 1][]byte
	for i := range sealed {
		sealed[i] = p.seal(t, wire(100, body))
	}
	at := 0
	receive := func() {
		if _, err := unix.Write(p.raw, sealed[at]); err != nil {
			t.Fatal(err)
		}
		at++
		for n.n < at {
			p.tr.Poll(64, fabric.Turn{})
		}
	}
	receive()
	if got := testing.AllocsPerRun(frames-1, receive); got > 1 {
		t.Errorf("a frame of %d bytes received allocates %v times, want 1 at most", len(body), got)
	}
	if got := testing.AllocsPerRun(500, func() { p.tr.Poll(64, fabric.Turn{}) }); got > 0 {
		t.Errorf("a Poll that finds nothing allocates %v times", got)
	}
}

// counter is a Receiver that counts.
type counter struct {
	recorder
	n int
}

func (c *counter) Frame(fabric.FrameID, []byte) error {
	c.n++
	return nil
}
