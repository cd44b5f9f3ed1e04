package nvme

import (
	"encoding/binary"
	"slices"

	"github.com/wherry-fabric/wherry/fabric"
)

// Window is memory that a lease's commands may use: part of a Remote, or of a segment of this element.
type Window struct {
	ID      uint32
	Base    uint64 // the address that it begins at
	Remote  *fabric.Remote
	Segment *fabric.Segment
	Offset  uint64 // where it begins in the memory
	Size    uint64
}

// window is a Window in use, or a buffer of this element that the borrower has a key to. Engine.mu guards what changes.
type window struct {
	Window
	ours  bool          // the segment is the Controller's
	users int           // queues in it, and commands that hold it
	gone  chan struct{} // closed when it was removed and has no users; nil: it was not removed
}

// mapped reports whether loads and stores reach it.
func (w *window) mapped() bool { return w.Segment != nil || w.Remote.Mapped() }

// far is the endpoint to the memory, where loads and stores do not reach it; else nil.
func (w *window) far() *fabric.Endpoint {
	if w.mapped() {
		return nil
	}
	return w.Remote.Endpoint()
}

// fence keeps what follows behind what was put there.
func (w *window) fence() {
	if far := w.far(); far != nil {
		far.Fence()
	}
}

// pin keeps the memory in place; nil if it is not to be had any more, or not for need. The window's part of it is returned.
func (w *window) pin(need fabric.Rights) []byte {
	if w.Segment != nil {
		if !w.Segment.Pin() {
			return nil
		}
		return w.Segment.Bytes()[w.Offset:][:w.Size:w.Size]
	}
	mem, err := w.Remote.Pin(need)
	if err != nil {
		return nil
	}
	return mem[w.Offset:][:w.Size:w.Size]
}

func (w *window) unpin() {
	if w.Segment != nil {
		w.Segment.Unpin()
		return
	}
	w.Remote.Unpin()
}

// store writes an aligned word of 8 bytes. wake: its owner's leader is to see it, if it sleeps.
func (w *window) store(e *Engine, off, v uint64, wake bool) error {
	if w.Segment == nil && (wake || !w.mapped()) {
		return w.Remote.Ring(w.Offset+off, 8, v)
	}
	mem := w.pin(fabric.RightWrite)
	if mem == nil {
		return fabric.ErrRevoked
	}
	fabric.CopyIn(mem[off:off+8], binary.NativeEndian.AppendUint64(nil, v))
	w.unpin()
	if wake {
		e.ring()
	}
	return nil
}

// holds reports whether n bytes at addr lie in the window.
func (w *window) holds(addr, n uint64) bool {
	off := addr - w.Base
	return addr >= w.Base && off <= w.Size && n <= w.Size-off
}

// leave is called by a user that is done with the window; e.mu is held.
func (w *window) leave() {
	if w.users--; w.users == 0 && w.gone != nil {
		close(w.gone)
	}
}

// window is the one that n bytes at addr lie in; nil: there is none. e.mu is held.
func (c *Controller) window(addr, n uint64) *window {
	if w := c.last; w != nil && w.holds(addr, n) {
		return w
	}
	i, _ := slices.BinarySearchFunc(c.windows, addr, func(w *window, addr uint64) int {
		if w.Base <= addr {
			return -1
		}
		return 1
	})
	if i == 0 || !c.windows[i-1].holds(addr, n) {
		return nil
	}
	c.last = c.windows[i-1]
	return c.last
}

// piece is part of a command's data where no loads and stores reach: it is moved by Puts.
type piece struct {
	remote *fabric.Remote
	off    uint64
	size   int
}

// pinned is a window that a command holds.
type pinned struct {
	w   *window
	mem []byte // nil: not mapped
	may fabric.Rights
}

// The page size of PRPs: CC.MPS is 0.
const pageBytes = 4096

// maxListPages bounds the pages of one PRP list: each page of data takes an entry, and a page of a list may hold as little as one entry and one that
// leads to the next.
const maxListPages = MaxTransferBytes / pageBytes

// hold finds the window of n bytes at addr and holds it for the command.
func (o *op) hold(addr, n uint64, need fabric.Rights) (p *pinned, off uint64, st Status) {
	w := o.c.window(addr, n)
	if w == nil {
		return nil, 0, StatusTransfer
	}
	off = addr - w.Base
	for i := range o.pins {
		if p := &o.pins[i]; p.w == w && p.may&need == need { // a list may lie in memory that data may not be written to
			return &o.pins[i], off, StatusOK
		}
	}
	var mem []byte
	switch {
	case w.mapped():
		if mem = w.pin(need); mem == nil {
			return nil, 0, StatusTransfer
		}
	case w.Remote.Key().Rights&need != need: // what is posted is not answered, so nobody would hear that its owner refuses it
		return nil, 0, StatusTransfer
	}
	w.users++
	o.pins = append(o.pins, pinned{w, mem, need})
	return &o.pins[len(o.pins)-1], off, StatusOK
}

// data adds n bytes at addr, which may go from one window to the next, to the command's data.
func (o *op) data(addr, n uint64, need fabric.Rights) Status {
	for n > 0 {
		size := n
		if w := o.c.window(addr, 1); w != nil {
			size = min(n, w.Base+w.Size-addr)
		}
		p, off, st := o.hold(addr, size, need)
		switch {
		case st != StatusOK:
			return st
		case p.mem != nil && len(o.far) == 0:
			o.pieces = append(o.pieces, p.mem[off:off+size:off+size])
		case p.mem == nil && need == fabric.RightWrite && len(o.pieces) == 0: // data that is written lies where the engine can read it
			o.far = append(o.far, piece{remote: p.w.Remote, off: p.w.Offset + off, size: int(size)})
		default:
			return StatusTransfer
		}
		addr, n = addr+size, n-size
	}
	return StatusOK
}

// locate finds where a command's data is.
func (o *op) locate(c *Command, size uint64, need fabric.Rights) Status {
	if c.SGL {
		switch {
		case c.Data[1]>>60 != sglDataBlock || c.Data[1]>>56&0xf != 0:
			return StatusSGLType
		case c.Data[1]&0xffffffff != size:
			return StatusSGLLength
		}
		return o.data(c.Data[0], size, need)
	}
	return o.locatePRP(c, size, need)
}

// run is data that lies in a row.
type run struct{ addr, size uint64 }

// grow adds a page to a run, or puts the run down and begins another.
func (o *op) grow(r *run, addr, n uint64, need fabric.Rights) Status {
	if r.size > 0 && r.addr+r.size == addr {
		r.size += n
		return StatusOK
	}
	if r.size > 0 {
		if st := o.data(r.addr, r.size, need); st != StatusOK {
			return st
		}
	}
	*r = run{addr, n}
	return StatusOK
}

func (o *op) locatePRP(c *Command, size uint64, need fabric.Rights) Status {
	first := min(pageBytes-c.Data[0]&(pageBytes-1), size)
	if c.Data[0]&3 != 0 {
		return StatusPRPOffset
	}
	r := run{c.Data[0], first}
	left := size - first
	switch {
	case left == 0:
		return o.data(r.addr, r.size, need)
	case left <= pageBytes:
		if c.Data[1]&(pageBytes-1) != 0 {
			return StatusPRPOffset
		}
		if st := o.grow(&r, c.Data[1], left, need); st != StatusOK {
			return st
		}
		return o.data(r.addr, r.size, need)
	}
	list := c.Data[1]
	for range maxListPages {
		if list&7 != 0 {
			return StatusPRPOffset
		}
		entries := (pageBytes - list&(pageBytes-1)) / 8
		p, off, st := o.hold(list, entries*8, fabric.RightRead)
		if st != StatusOK || p.mem == nil {
			return StatusTransfer // a list lies where the engine can read it
		}
		for i := range entries {
			var b [8]byte
			fabric.CopyOut(b[:], p.mem[off+8*i:off+8*i+8])
			entry := binary.LittleEndian.Uint64(b[:])
			if i == entries-1 && left > pageBytes { // it leads to the next page of the list
				list = entry
				break
			}
			if entry&(pageBytes-1) != 0 {
				return StatusPRPOffset
			}
			n := min(left, pageBytes)
			if st := o.grow(&r, entry, n, need); st != StatusOK {
				return st
			}
			if left -= n; left == 0 {
				return o.data(r.addr, r.size, need)
			}
		}
	}
	return StatusPRPOffset // a list that goes round in circles
}
