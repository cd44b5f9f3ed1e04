package tcp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// guarded takes its memory back after a number of writes to it.
type guarded struct {
	recorder
	writes int // begun
	within int // begun and not ended
	most   int // that the first fragment may have
	dsts   [][]byte
	placed int
}

func (g *guarded) BeginWrite(id fabric.FrameID) bool {
	if id != idPutData {
		panic("written for another frame")
	}
	if g.placed == 0 && g.writes >= g.most {
		return false
	}
	g.writes++
	g.within++
	return true
}

func (g *guarded) EndWrite(fabric.FrameID) { g.within-- }

func (g *guarded) Place(_ fabric.FrameID, _ []byte, n int) ([]byte, error) {
	g.dsts = append(g.dsts, make([]byte, n))
	return g.dsts[len(g.dsts)-1], nil
}

// Frame takes a fragment that was there as a whole: the link has written nothing.
func (g *guarded) Frame(id fabric.FrameID, body []byte) error {
	if id != idPutData {
		return g.recorder.Frame(id, body)
	}
	dst, _ := g.Place(id, nil, len(body)-fabric.PlaceHeadBytes)
	copy(dst, body[fabric.PlaceHeadBytes:])
	return g.Placed(id, nil, len(dst))
}

func (g *guarded) Placed(_ fabric.FrameID, _ []byte, n int) error {
	if g.within != 0 || n != len(g.dsts[g.placed]) {
		panic("placed before it was written")
	}
	g.log = append(g.log, "placed")
	g.placed++
	return nil
}

// TestTakenBack: what comes of a fragment after its memory was taken back is discarded, and what follows it is whole.
func TestTakenBack(t *testing.T) {
	const n = 60_000
	body := fill(fabric.PlaceHeadBytes+n, 1)
	data := body[fabric.PlaceHeadBytes:]
	stream := bytes.Join([][]byte{wire(idPutData, body), wire(100, []byte("between")), wire(idPutData, body), wire(100, nil)}, nil)
	for _, most := range []int{0, 1, 2, 3, 1000} {
		for _, cut := range []int{900, 7000, 50_000} {
			t.Run(fmt.Sprint(most, " ", cut), func(t *testing.T) {
				g := &guarded{most: most}
				tr, l, peer := pipe(t, Config{}, g)
				defer unix.Close(peer)
				for rest := stream; len(rest) > 0; {
					k, err := unix.Write(peer, rest[:min(cut, len(rest))])
					if err != nil && err != unix.EAGAIN {
						t.Fatal(err)
					}
					rest = rest[max(k, 0):]
					for tr.Poll(64, fabric.Turn{}) > 0 || tr.Arm() {
					}
				}
				for range 100 {
					tr.Poll(64, fabric.Turn{})
				}
				if got := strings.Join(g.log, ", "); got != "placed, 100 6265747765656e, placed, 100 " {
					t.Fatalf("heard %.200q (lost: %v, discarding %d)", got, g.lost, l.discard)
				}
				if !bytes.Equal(g.dsts[1], data) {
					t.Error("the fragment that was not taken back is not whole")
				}
				first := bytes.TrimRight(g.dsts[0], "\x00")
				if !bytes.HasPrefix(data, first) {
					t.Error("the fragment that was taken back is not a prefix")
				}
				if most == 0 && len(first) > 0 || most == 1000 && !bytes.Equal(g.dsts[0], data) || most < 4 && cut < n/8 && len(first) > n/2 {
					t.Errorf("%d bytes were written in at most %d writes", len(first), most)
				}
			})
		}
	}
}
