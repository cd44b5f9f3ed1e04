package inject

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// guestMemory is a Backing whose memfd goes on behind the segment, with what is none of a function's business.
type guestMemory struct {
	fd  int
	mem []byte
}

func (g *guestMemory) Bytes() []byte                { return g.mem }
func (g *guestMemory) FD() (int, int64)             { return g.fd, 0 }
func (g *guestMemory) ReadAt([]byte, uint64) error  { return nil }
func (g *guestMemory) WriteAt([]byte, uint64) error { return nil }
func (g *guestMemory) Close() error                 { unix.Munmap(g.mem); return unix.Close(g.fd) }

// TestWindowEnds: a window, which is whole pages, ends before anybody else's memory, also where that is not a segment's.
func TestWindowEnds(t *testing.T) {
	el, err := fabric.New(fabric.Config{Name: "x", Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer el.Close()
	foreign := func(size uint64) (*fabric.Segment, error) {
		const all = 4 * fabric.SegmentAlign
		fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(fd, all)
		}
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
		}
		if err != nil {
			return nil, err
		}
		mem, err := unix.Mmap(fd, 0, all, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return nil, err
		}
		return el.NewSegmentOn(&guestMemory{fd, mem}, size, fabric.Writable)
	}
	padded := func(size uint64) (*fabric.Segment, error) {
		seg, err := el.NewSegment(size, fabric.Writable)
		if err == nil {
			seg.Pad(2*fabric.SegmentAlign - 100)
		}
		return seg, err
	}
	own := func(size uint64) (*fabric.Segment, error) { return el.NewSegment(size, fabric.Writable) }
	for _, c := range []struct {
		name             string
		make             func(uint64) (*fabric.Segment, error)
		size, from, part uint64
		ok               bool
	}{
		{"as Pad says", padded, 4 * fabric.SegmentAlign, 0, 2*fabric.SegmentAlign - 100, true},
		{"as Pad says, and with the next one's beginning", padded, 4 * fabric.SegmentAlign, 4096, 2*fabric.SegmentAlign - 100 - 4096, false},
		{"own, with zeros behind it", own, 100, 0, 100, true},
		{"its end", own, fabric.SegmentAlign + 100, fabric.SegmentAlign, 100, true},
		{"within a page", own, 200, 0, 100, false},
		{"foreign, whole pages", foreign, fabric.SegmentAlign, 0, fabric.SegmentAlign, true},
		{"foreign, with others' behind it", foreign, 100, 0, 100, false},
		{"its end, with others' behind it", foreign, fabric.SegmentAlign + 100, fabric.SegmentAlign, 100, false},
	} {
		seg, err := c.make(c.size)
		if err != nil {
			t.Fatal(err)
		}
		k, err := seg.KeyRange(c.from, c.part, fabric.RightsAll)
		if err != nil {
			t.Fatal(err)
		}
		b := &bound{}
		if _, err := (&Runtime{el: el}).openWindow(b, cluster.Window{Key: k, Size: c.part}, true, true); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if w, err := (&Runtime{el: el}).openWindow(b, cluster.Window{Key: k, Size: c.part}, false, false); err != nil || w.Size != 0 {
			t.Errorf("%s, not mapped: %+v, %v", c.name, w, err)
		}
		for _, s := range b.segments {
			s.Unpin()
		}
	}
}
