package nvme

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes is what place remembers as one: a bit for it costs 2 MiB for a drive of 1 TiB.
	chunkBytes = 64 << 10
	// lookEvery is how many accesses to chunks that are not known to be there go by before the next is looked up: a sparse file pays little for that.
	lookEvery = 4
)

// place is a file of a file system in memory, mapped here: loads and stores reach what it holds, without a system call.
//
// Only chunks without holes are reached so. A load from a hole would fill it, so that a borrower with the right to read
// could take as much of the lender's memory as the drive is large; a store to a hole may find the file system full, which is a signal and not an error.
type place struct {
	fd     int
	mem    []byte
	dense  []atomic.Uint64 // a bit for each chunk: it had no hole when it was looked up
	missed atomic.Uint32
}

// openPlace maps a file; nil if that cannot be done.
func openPlace(fd int, size uint64, readOnly bool) *place {
	prot := unix.PROT_READ | unix.PROT_WRITE
	if readOnly {
		prot = unix.PROT_READ
	}
	mem, err := unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	p := &place{fd: fd, mem: mem, dense: make([]atomic.Uint64, size/chunkBytes/64+1)}
	runtime.AddCleanup(p, func(mem []byte) { unix.Munmap(mem) }, mem) // not by Close: a command may still be under way
	return p
}

// move carries out a read or write; false: it was not done, or in part, and is to be done by a call.
func (p *place) move(r *Request) bool {
	return p.holds(r.Off, r.Size) && p.copy(r)
}

// holds reports whether none of a range lies in a hole, as far as is known.
func (p *place) holds(off, size int64) bool {
	for c := off / chunkBytes; c*chunkBytes < off+size; c++ {
		if p.dense[c/64].Load()>>(c%64)&1 == 0 && !p.look(c) {
			return false
		}
	}
	return true
}

// look finds out whether a chunk has no hole.
func (p *place) look(c int64) bool {
	if p.missed.Add(1)%lookEvery != 0 {
		return false
	}
	hole, err := unix.Seek(p.fd, c*chunkBytes, unix.SEEK_HOLE)
	if err != nil || hole < min((c+1)*chunkBytes, int64(len(p.mem))) {
		return false
	}
	p.dense[c/64].Or(1 << (c % 64))
	return true
}

// forget is called when holes are made, before and after.
func (p *place) forget(off, size int64) {
	for c := off / chunkBytes; c*chunkBytes < off+size; c++ {
		p.dense[c/64].And(^uint64(1 << (c % 64)))
	}
}

// copy moves the bytes. Another process may cut the file off meanwhile, and then there is nothing at the address: that is a fault, which ends the copy and not the
// program.
func (p *place) copy(r *Request) (done bool) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if done {
			return
		}
		e := recover()
		if _, fault := e.(interface{ Addr() uintptr }); !fault {
			panic(e)
		}
		p.forget(r.Off, r.Size)
	}()
	at := p.mem[r.Off : r.Off+r.Size]
	for _, piece := range r.Pieces {
		if r.Op == OpRead {
			copy(piece, at)
		} else {
			copy(at, piece)
		}
		at = at[len(piece):]
	}
	runtime.KeepAlive(p) // its mapping
	return true
}
