package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// Ids of the frames that may be placed, as docs/wire.md has them.
const (
	idGetData fabric.FrameID = 9
	idPutData fabric.FrameID = 12
)

// recorder writes down what it is told.
type recorder struct {
	log   []string
	dst   []byte
	lost  error
	after func()
}

var errUnwanted = errors.New("unwanted")

func (r *recorder) Frame(id fabric.FrameID, body []byte) error {
	if r.lost != nil {
		panic("a frame after Lost")
	}
	if fabric.BulkFrame(id) && len(body) >= fabric.PlaceHeadBytes {
		return r.bulk(id, body[:fabric.PlaceHeadBytes], body[fabric.PlaceHeadBytes:])
	}
	r.log = append(r.log, fmt.Sprintf("%d %x", id, body))
	return r.end(id)
}

func (r *recorder) bulk(id fabric.FrameID, head, data []byte) error {
	if head[0]&1 == 0 { // discarded, if it were placed
		r.log = append(r.log, fmt.Sprintf("%d bulk %x, %d bytes", id, head, len(data)))
	} else {
		r.log = append(r.log, fmt.Sprintf("%d bulk %x %x", id, head, data))
	}
	return r.end(id)
}

func (r *recorder) end(id fabric.FrameID) error {
	if r.after != nil {
		r.after()
	}
	if id == 666 {
		return errUnwanted
	}
	return nil
}

func (r *recorder) Place(_ fabric.FrameID, head []byte, n int) ([]byte, error) {
	r.dst = nil
	if head[0]&1 == 1 {
		r.dst = make([]byte, n)
	}
	return r.dst, nil
}

func (r *recorder) Placed(id fabric.FrameID, head []byte, n int) error {
	data := r.dst
	if data == nil {
		data = make([]byte, n)
	}
	return r.bulk(id, head, data)
}

func (r *recorder) Writable() {}

func (r *recorder) Lost(err error) {
	if r.lost != nil {
		panic("lost twice")
	}
	r.lost = err
}

// pipe is a link whose peer is a plain socket.
func pipe(t testing.TB, cfg Config, r fabric.Receiver) (tr *Transport, l *link, peer int) {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	l = &link{t: tr, fd: fds[0], r: r}
	l.guard, _ = r.(fabric.PlaceGuard)
	if err := tr.add(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr, l, fds[1]
}

// play writes stream to a link, cut after each of cuts bytes, and returns what its receiver heard.
func play(t testing.TB, stream []byte, cuts []byte) *recorder {
	r := &recorder{}
	tr, _, peer := pipe(t, Config{}, r)
	for i := 0; len(stream) > 0 && r.lost == nil; i++ {
		n := min(len(stream), 60_000)
		if len(cuts) > 0 {
			n = min(n, 1+int(cuts[i%len(cuts)])*97)
		}
		n, err := unix.Write(peer, stream[:n])
		if err != nil && err != unix.EAGAIN && err != unix.EPIPE {
			t.Fatal(err)
		}
		stream = stream[max(n, 0):]
		for range 4 {
			tr.Poll(1+i%64, fabric.Turn{})
		}
	}
	for tr.Poll(64, fabric.Turn{}) > 0 || tr.Arm() {
	}
	unix.Close(peer)
	for range 10_000 {
		if r.lost != nil {
			return r
		}
		tr.Poll(64, fabric.Turn{})
	}
	t.Fatal("the end of the stream was not noticed")
	return nil
}

func wire(id fabric.FrameID, body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(id)<<20|uint32(len(body))), body...)
}

func fill(n int, first byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ first
	}
	if n > 0 {
		b[0] = first
	}
	return b
}

// streams are whole and broken ones.
func streams() (list [][]byte) {
	var all []byte
	for _, n := range []int{0, 1, 8, 55, 4095, 8192, 65536, fabric.MaxFrameBytes} {
		all = append(all, wire(100, fill(n, 2))...)
		for _, first := range []byte{0, 1} {
			all = append(all, wire(idPutData, fill(n, first))...)
			all = append(all, wire(idGetData, fill(n, first))...)
		}
	}
	tooLong := binary.LittleEndian.AppendUint32(nil, 100<<20|uint32(fabric.MaxFrameBytes+1))
	return [][]byte{all, append(all[:len(all):len(all)], tooLong...), all[:len(all)-3], tooLong, {},
		append(wire(666, []byte("x")), wire(100, nil)...), bytes.Repeat(wire(4095, nil), 3000), bytes.Repeat([]byte{0xff}, 100)}
}

// sameEverywhere plays a stream whole and cut, and compares.
func sameEverywhere(t testing.TB, stream, cuts []byte) {
	whole, cut := play(t, stream, nil), play(t, stream, cuts)
	if len(whole.log) != len(cut.log) {
		t.Fatalf("%d frames whole, %d in pieces", len(whole.log), len(cut.log))
	}
	for i := range whole.log {
		if whole.log[i] != cut.log[i] {
			t.Fatalf("frame %d is %.80q whole and %.80q in pieces", i, whole.log[i], cut.log[i])
		}
	}
	if whole.lost.Error() != cut.lost.Error() {
		t.Fatalf("lost because %v, in pieces because %v", whole.lost, cut.lost)
	}
}

func TestStreamInPieces(t *testing.T) {
	for i, s := range streams() {
		for _, cuts := range [][]byte{{0}, {1}, {3, 200}, {255}, {42, 0, 7}} {
			if len(s) > 100_000 && cuts[0] < 3 && len(cuts) == 1 {
				continue // byte by byte takes too long
			}
			t.Run(fmt.Sprint(i, " ", cuts), func(t *testing.T) { sameEverywhere(t, s, cuts) })
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, s := range streams() {
		if len(s) < 20_000 {
			f.Add(s, []byte{5, 0, 90})
		}
	}
	f.Add(append(wire(idPutData, fill(9000, 1)), wire(idGetData, fill(5000, 0))...), []byte{40})
	f.Fuzz(func(t *testing.T, stream, cuts []byte) { sameEverywhere(t, stream, cuts) })
}

// TestClosedInside: a receiver that closes its link hears no more, whatever is at hand.
func TestClosedInside(t *testing.T) {
	r := &recorder{}
	tr, l, peer := pipe(t, Config{}, r)
	defer unix.Close(peer)
	r.after = func() { l.Close() }
	if _, err := unix.Write(peer, bytes.Repeat(wire(100, []byte("x")), 50)); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		tr.Poll(64, fabric.Turn{})
	}
	if len(r.log) != 1 || r.lost != nil {
		t.Errorf("%d frames and %v after Close", len(r.log), r.lost)
	}
	if err := l.Send(100, fabric.Normal, nil, nil); !errors.Is(err, fabric.ErrLinkClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

// TestTurnOver: a callback that passes the leadership on leaves the rest of the
// frames to the next Poll, in order.
func TestTurnOver(t *testing.T) {
	r := &recorder{}
	tr, _, peer := pipe(t, Config{}, r)
	defer unix.Close(peer)
	var term atomic.Uint64
	r.after = func() { term.Add(1) }
	var stream []byte
	for i := range 50 {
		stream = append(stream, wire(100, []byte{byte(i)})...)
	}
	if _, err := unix.Write(peer, stream); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		tr.Poll(64, fabric.NewTurn(&term, term.Load()))
		if want := fmt.Sprintf("100 %02x", i); len(r.log) != i+1 || r.log[i] != want {
			t.Fatalf("after poll %d: %d frames, the last %q", i, len(r.log), r.log[len(r.log)-1])
		}
		if tr.Arm() != (i < 49) {
			t.Fatalf("after frame %d of 50, Arm says %v", i, i == 49)
		}
	}
}

// TestSendBounds: what the socket does not take is kept up to the bound, with
// as much again for reserved frames, and Writable follows.
func TestSendBounds(t *testing.T) {
	var w writable
	tr, l, peer := pipe(t, Config{OutBytes: 128 << 10}, &w)
	defer unix.Close(peer)
	var want []byte
	send := func(class fabric.Class, head, body int) error {
		h, b := fill(head, byte(len(want))), fill(body, byte(len(want)+1))
		err := l.Send(100, class, h, b)
		if err == nil {
			want = append(want, wire(100, append(h, b...))...)
		}
		return err
	}
	counts := [2]int{}
	for class := range counts {
		var err error
		for i := 0; err == nil; i++ {
			sizes := [][2]int{{0, 0}, {10, 100}, {0, 30_000}, {30_000, 0}, {9000, 9000}, {0, 65_536}, {8188, 0}, {8189, 1}}[i%8]
			if err = send(fabric.Class(class), sizes[0], sizes[1]); err == nil {
				counts[class]++
			}
		}
		if !errors.Is(err, fabric.ErrLinkFull) {
			t.Fatal(err)
		}
	}
	if kept := len(l.out) - l.outAt; kept > 2*tr.cfg.OutBytes || counts[1] == 0 {
		t.Errorf("%d bytes are kept; %d reserved frames went in", kept, counts[1])
	}
	var got []byte
	buf := make([]byte, 1<<16)
	for len(got) < len(want) {
		n, err := unix.Read(peer, buf)
		if err == unix.EAGAIN {
			if tr.Poll(64, fabric.Turn{}) == 0 {
				continue
			}
			continue
		}
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the bytes of the frames differ")
	}
	if w.n == 0 {
		t.Error("Writable was not called")
	}
	if err := l.Send(100, fabric.Normal, nil, make([]byte, fabric.MaxFrameBytes+1)); err == nil {
		t.Error("a frame that is too large was sent")
	}
	if err := l.Send(fabric.MaxFrameID+1, fabric.Normal, nil, nil); err == nil {
		t.Error("an id that has no 12 bits was sent")
	}
}

type writable struct {
	recorder
	n    int
	full int // n that is due because a send found no room
}

func (w *writable) Writable() { w.n++ }
