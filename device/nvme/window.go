package nvme

import (
	"encoding/binary"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
)

// window is memory that a lease's addresses reach: a borrower's, or a buffer of this element that the borrower has a key to.
type window struct {
	remote *fabric.Remote  // the borrower's
	own    *fabric.Segment // ours
	size   uint64
}

// mapped reports whether loads and stores reach it.
func (w *window) mapped() bool { return w.own != nil || w.remote.Mapped() }

// pin keeps the memory in place; nil if it is not to be had any more, or not for need.
func (w *window) pin(need fabric.Rights) []byte {
	if w.own != nil {
		if !w.own.Pin() {
			return nil
		}
		return w.own.Bytes()
	}
	mem, err := w.remote.Pin(need)
	if err != nil {
		return nil
	}
	return mem
}

func (w *window) unpin() {
	if w.own != nil {
		w.own.Unpin()
		return
	}
	w.remote.Unpin()
}

// holds reports whether n bytes at off lie in the window.
func (w *window) holds(off, n uint64) bool { return off <= w.size && n <= w.size-off }

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
	id, off := device.Split(addr)
	w := o.c.windows[id]
	if w == nil || !w.holds(off, n) {
		return nil, 0, StatusTransfer
	}
	for i := range o.pins {
		if p := &o.pins[i]; p.w == w && p.may&need == need { // a list may lie in memory that data may not be written to
			return &o.pins[i], off, StatusOK
		}
	}
	var mem []byte
	if w.mapped() {
		if mem = w.pin(need); mem == nil {
			return nil, 0, StatusTransfer
		}
	}
	o.pins = append(o.pins, pinned{w, mem, need})
	return &o.pins[len(o.pins)-1], off, StatusOK
}

// data adds n bytes at addr to the command's data.
func (o *op) data(addr, n uint64, need fabric.Rights) Status {
	p, off, st := o.hold(addr, n, need)
	if st != StatusOK {
		return st
	}
	if p.mem != nil {
		if len(o.far) > 0 {
			return StatusTransfer
		}
		o.pieces = append(o.pieces, p.mem[off:off+n:off+n])
		return StatusOK
	}
	if need != fabric.RightWrite || len(o.pieces) > 0 {
		return StatusTransfer // data that is written lies where the engine can read it
	}
	o.far = append(o.far, piece{remote: p.w.remote, off: off, size: int(n)})
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
	if r.size > 0 && r.addr+r.size == addr && addr&(device.MaxWindowBytes-1) != 0 {
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
