package fabrictest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/layer"
)

// memoryRegisters: registers take aligned words and nothing else, by whatever route.
func memoryRegisters(r *rig) {
	_, b, ab, _ := r.pair()
	if _, err := b.NewSegment(fabric.RegistersBytes+1, fabric.Registers); !errors.Is(err, fabric.ErrRange) {
		r.Errorf("more than a page of registers: %v", err)
	}
	seg, err := b.NewSegment(fabric.RegistersBytes, fabric.Registers)
	r.Must(err)
	for _, rem := range r.routes(ab, seg) {
		for _, c := range []struct {
			at   uint64
			size int
			ok   bool
		}{{0, 4, true}, {4, 4, true}, {8, 8, true}, {0, 0, true}, {4, 8, false}, {2, 4, false}, {0, 2, false}, {0, 1, false}, {0, 12, false}, {0, 64, false}, {0, 2048, false}} {
			p := make([]byte, c.size)
			for i := range p {
				p[i] = byte(c.size + i)
			}
			clear(rem.mem)
			for verb, err := range map[string]error{"put": rem.Put(r.Ctx, p, c.at), "get": rem.Get(r.Ctx, make([]byte, c.size), c.at)} {
				if c.ok && err != nil || !c.ok && !errors.Is(err, fabric.ErrAlign) {
					r.Errorf("%s: %s of %d bytes at %d of registers: %v", rem.name, verb, c.size, c.at, err)
				}
			}
			if got := rem.mem[c.at : c.at+uint64(c.size)]; c.ok != (string(got) == string(p)) && c.size > 0 {
				r.Errorf("%s: after a put of %x at %d there is %x", rem.name, p, c.at, got)
			}
		}
		if _, err := rem.Atomic(r.Ctx, fabric.FetchAdd(1), 8, 16); err != nil {
			r.Errorf("%s: an atomic on a register: %v", rem.name, err)
		}
		if err := rem.Access(fabric.RightRead, 0, 64, func([]byte) {}); err == nil {
			r.Errorf("%s: registers can be had as memory", rem.name)
		}
		if _, err := rem.Pin(fabric.RightRead); err == nil {
			r.Errorf("%s: registers can be pinned as memory", rem.name)
		}
	}
}

// device is a Poller that copies a register, and has no descriptor: what wakes its leader is the doorbell.
type device struct {
	register []byte
	seen     atomic.Uint32
}

func (d *device) load() uint32 {
	var b [4]byte
	fabric.CopyOut(b[:], d.register)
	return binary.NativeEndian.Uint32(b[:])
}

func (d *device) Poll(int, fabric.Turn) int {
	if v := d.load(); v != d.seen.Load() {
		d.seen.Store(v)
		return 1
	}
	return 0
}

func (d *device) Arm() bool   { return d.load() != d.seen.Load() }
func (d *device) Disarm()     {}
func (d *device) WaitFD() int { return -1 }

// memoryDoorbells: who rings wakes the owner's leader from its sleep.
func memoryDoorbells(r *rig) {
	b := r.node(func(c *fabric.Config) { c.Policy, c.Limits.PeerTime = fabric.Efficient, 8*untold })
	b.Layer(layer.Pass{}).TickEvery(untold)
	ab, _ := r.connect(r.node(), b)
	seg, err := b.NewSegment(fabric.RegistersBytes, fabric.Registers)
	r.Must(err)
	for _, rem := range r.routes(ab, seg) {
		d := &device{register: rem.mem[8:]}
		r.Must(b.AddPoller(d))
		for i := range uint32(12) {
			time.Sleep(3 * time.Millisecond) // it falls asleep
			r.Must(rem.Ring(8, 4, uint64(i+1)))
			r.Eventually(rem.name+": the doorbell is heard", func() bool { return d.seen.Load() == i+1 })
		}
		r.Must(b.RemovePoller(r.Ctx, d))
		r.Must(rem.Ring(16, 8, 1<<40|7))
		r.Eventually("eight bytes ring", func() bool { return binary.LittleEndian.Uint64(rem.mem[16:]) == 1<<40|7 })
		for _, c := range []struct{ at, width int }{{2, 4}, {4, 8}, {0, 2}, {0, 16}} {
			if err := rem.Ring(uint64(c.at), c.width, 1); !errors.Is(err, fabric.ErrAlign) {
				r.Errorf("%s: a doorbell of %d bytes at %d: %v", rem.name, c.width, c.at, err)
			}
		}
		if err := rem.Ring(fabric.RegistersBytes, 4, 1); rem.Mapped() && !errors.Is(err, fabric.ErrRange) {
			r.Errorf("%s: a doorbell behind the last: %v", rem.name, err)
		}
	}
}

// memoryPosted: what is posted is there after a Flush, in order behind a Fence, and where there is no room nothing of it is sent.
func memoryPosted(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 256<<10)
	for _, rem := range r.routes(ab, seg) {
		for i, n := range []int{1, 4, 8, 100, 257, 4096, fabric.MaxPostBytes} {
			p := bytes.Repeat([]byte{byte(i + 1)}, n)
			r.Must(r.posted(rem.Remote, p, 8))
			clear(p) // it is the caller's again
			r.Must(ab.Flush(r.Ctx))
			if rem.mem[7] != 0 || rem.mem[8] != byte(i+1) || rem.mem[8+n-1] != byte(i+1) || rem.mem[8+n] == byte(i+1) {
				r.Errorf("%s: %d bytes posted are not there", rem.name, n)
			}
		}
		clear(rem.mem)
		counter := make([]byte, 4096) // a large one, and a small one behind it that says which that was
		for i := range uint32(200) {
			binary.LittleEndian.PutUint32(counter, i)
			r.Must(r.posted(rem.Remote, counter, 128<<10))
			ab.Fence()
			r.Must(r.posted(rem.Remote, counter[:4], 64))
			var word [4]byte
			fabric.CopyOut(word[:], rem.mem[64:68])
			small := binary.LittleEndian.Uint32(word[:])
			fabric.CopyOut(word[:], rem.mem[128<<10:][:4])
			if large := binary.LittleEndian.Uint32(word[:]); int32(large-small) < 0 {
				r.Fatalf("%s: a Post behind a fence was before it: %d, %d", rem.name, small, large)
			}
		}
		r.Must(ab.Flush(r.Ctx))
		if err := rem.Post(make([]byte, fabric.MaxPostBytes+1), 0); !errors.Is(err, fabric.ErrTooLarge) {
			r.Errorf("%s: too much is posted: %v", rem.name, err)
		}
		clear(rem.mem)
	}
}

// posted posts when there is room.
func (r *rig) posted(rem *fabric.Remote, p []byte, off uint64) error {
	for {
		err := rem.Post(p, off)
		if !errors.Is(err, fabric.ErrBackpressure) {
			return err
		}
		if err := rem.Endpoint().Flush(r.Ctx); err != nil {
			return err
		}
	}
}

// memoryPinned: pinned memory stays while its owner ends, and is not to be had afterwards.
func memoryPinned(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 64<<10)
	list := r.routes(ab, seg)
	if _, err := list[1].Pin(fabric.RightRead); err == nil {
		r.Errorf("memory that its owner serves can be pinned")
	}
	rem := list[0]
	if !rem.Mapped() {
		return
	}
	mem, err := rem.Pin(fabric.RightRead | fabric.RightWrite)
	r.Must(err)
	copy(mem, "pinned")
	if string(seg.Bytes()[:6]) != "pinned" || uint64(len(mem)) != rem.Size() {
		r.Errorf("pinned %d bytes of %d", len(mem), rem.Size())
	}
	r.Must(b.Close())
	r.Eventually("the endpoint ends", func() bool { return ab.Err() != nil })
	mem[len(mem)-1] = 1 // a fault, if the mapping had gone
	if string(mem[:6]) != "pinned" {
		r.Errorf("pinned memory was taken away: %q", mem[:6])
	}
	rem.Unpin()
	if _, err := rem.Pin(fabric.RightRead); !errors.Is(err, fabric.ErrPeerLost) && !errors.Is(err, fabric.ErrClosed) {
		r.Errorf("a lost peer's memory is pinned: %v", err)
	}
}

// memoryForgotten: a small Put that was forgotten, and whose bytes changed since, takes effect as it was, also where a fence holds it back: the entry of a queue,
// and the doorbell behind it.
func memoryForgotten(r *rig) {
	_, b, ab, _ := r.pair()
	seg := r.segment(b, 4<<20)
	for _, rem := range r.routes(ab, seg) {
		large := make([]byte, 1<<20)
		var entry [64]byte
		for i := range uint32(32) {
			for k := range large {
				large[k] = byte(i)
			}
			put := rem.StartPut(large, 4096)
			ab.Fence()
			binary.LittleEndian.PutUint32(entry[60:], i+1)
			small := rem.StartPut(entry[:], 0)
			ab.Fence()
			r.Must(rem.Ring(64, 4, uint64(i+1)))
			small.Forget()
			clear(entry[:])
			r.Eventually("the doorbell is rung", func() bool {
				var w [4]byte
				fabric.CopyOut(w[:], rem.mem[64:68])
				return binary.LittleEndian.Uint32(w[:]) == i+1
			})
			if got := binary.LittleEndian.Uint32(rem.mem[60:]); got != i+1 || rem.mem[4096] != byte(i) || rem.mem[4096+len(large)-1] != byte(i) {
				r.Fatalf("%s: doorbell %d is rung, and the entry is %d, the data %d…%d", rem.name, i+1, got, rem.mem[4096], rem.mem[4096+len(large)-1])
			}
			r.Must(put.Wait(r.Ctx))
		}
	}
}
