package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Remote is a peer's memory, as a key refers to it, ready for Get, Put and
// Atomic. Where peer and key allow it (same machine, and a key to all of a
// segment with all the rights a mapping would give) the memory is mapped and an operation is a
// plain copy; elsewhere the owner serves it. A mapping lives as long as the endpoint, or until the owner
// closes the segment.
type Remote struct {
	ep    *Endpoint
	key   Key
	route route
}

// A route is how operations reach a Remote's memory: Import chooses it. The methods are the Remote's; those that wait are not
// made of those that start, as an Op costs as much as a load or store of mapped memory.
type route interface {
	get(ctx context.Context, dst []byte, offset uint64) error
	put(ctx context.Context, src []byte, offset uint64) error
	atomic(ctx context.Context, op AtomicOp, width int, offset uint64) (uint64, error)
	startGet(dst []byte, offset uint64) Op
	startPut(src []byte, offset uint64) Op
	startAtomic(op AtomicOp, width int, offset uint64) Op
	access(need Rights, offset, size uint64, fn func(mem []byte)) error
	pin(need Rights) ([]byte, error)
	unpin()
	ring(offset uint64, width int, v uint64) error
	post(src []byte, offset uint64) error
}

// newRemote is memory that its owner serves, until it is found to be nearer.
func newRemote(ep *Endpoint, k Key) *Remote {
	r := &Remote{ep: ep, key: k}
	r.route = served{r}
	return r
}

// Import makes a peer's key usable. It asks the peer once, and fails if the
// key does not hold.
func (ep *Endpoint) Import(ctx context.Context, k Key) (*Remote, error) {
	return ep.startImport(ctx, k).Wait(ctx)
}

// Importing is an Import that was started. Exactly one of Wait and Forget ends it.
type Importing struct {
	op Op
	r  *Remote // nil: it failed at once
}

// StartImport starts an Import, so that many keys cost one round trip. Where no more operations
// can be under way, it has failed with ErrBackpressure.
func (ep *Endpoint) StartImport(k Key) Importing { return ep.startImport(nil, k) }

func (ep *Endpoint) startImport(ctx context.Context, k Key) Importing {
	if k.Owner != ep.Incarnation() {
		return Importing{op: Op{err: &PeerError{Peer: ep.String(), Op: "import", Err: fmt.Errorf("%w (%v)", ErrIncarnation, k.Owner)}}}
	}
	rec, err := ep.startOp(ctx, "import", nil)
	if err != nil {
		return Importing{op: Op{err: err}}
	}
	var b [4 + keyRefBytes]byte
	ep.request(ctx, frameImport, rec, k.ref().append(binary.LittleEndian.AppendUint32(b[:0], rec.id())))
	return Importing{rec.op(), newRemote(ep, k)}
}

// Poll reports whether the peer has answered, or the Import has failed.
func (i Importing) Poll() bool { return i.op.Poll() }

// Wait drives progress until the Import has ended.
func (i Importing) Wait(ctx context.Context) (*Remote, error) {
	if i.r == nil {
		return nil, i.op.err
	}
	if err := i.op.waitKeep(ctx); err != nil {
		return nil, err
	}
	blob := i.op.rec.blob
	i.r.ep.ops.release(i.op.rec)
	if err := i.r.map_(ctx, blob); err != nil {
		return nil, &PeerError{Peer: i.r.ep.String(), Op: "import", Err: err}
	}
	return i.r, nil
}

// Forget gives the Import up without waiting for its end.
func (i Importing) Forget() { i.op.Forget() }

// Served makes a peer's key usable without asking the peer: operations are served by it, and the first says if the key does not hold.
func (ep *Endpoint) Served(k Key) *Remote { return newRemote(ep, k) }

// Part makes a key usable that the owner narrowed to the bytes from offset on of what r's key covers, without asking the owner: where r is mapped, by the
// same mapping; each operation still checks whether k holds.
func (r *Remote) Part(k Key, offset uint64) (*Remote, error) {
	if k.Owner != r.key.Owner {
		return nil, r.errAt("import", fmt.Errorf("%w (%v)", ErrIncarnation, k.Owner))
	}
	if offset > r.key.Size || k.Size > r.key.Size-offset {
		return nil, r.errAt("import", fmt.Errorf("%w: [%d, +%d) of %d", ErrRange, offset, k.Size, r.key.Size))
	}
	part := newRemote(r.ep, k)
	if m, yes := r.route.(*mapped); yes {
		r.ep.map_.part(part, m, offset)
	}
	return part, nil
}

// Size is the number of bytes the key covers.
func (r *Remote) Size() uint64 { return r.key.Size }

// Key is what Import was given.
func (r *Remote) Key() Key { return r.key }

// Mapped reports whether the memory is mapped here.
func (r *Remote) Mapped() bool {
	_, yes := r.route.(*mapped)
	return yes
}

// Endpoint leads to the owner.
func (r *Remote) Endpoint() *Endpoint { return r.ep }

func (r *Remote) errAt(verb string, err error) error {
	return &PeerError{Peer: r.ep.String(), Op: verb, Err: err}
}

// Get copies len(dst) bytes from offset. Up to an aligned 8 bytes are read whole; more may be
// torn by a concurrent write.
func (r *Remote) Get(ctx context.Context, dst []byte, offset uint64) error {
	return r.route.get(ctx, dst, offset)
}

// StartGet starts a Get. dst is the operation's until it ends. Where no more operations can be under way,
// the Op has failed with ErrBackpressure.
func (r *Remote) StartGet(dst []byte, offset uint64) Op { return r.route.startGet(dst, offset) }

// Access runs fn on size bytes at offset of the memory itself, where it is mapped (Mapped) and the key and the
// mapping allow what need says; fn must not keep them. They stay in place while it runs, whatever becomes of the peer. What holds for Get and Put of more than a word holds here:
// the peer writes at the same time, and revocation is noticed at the start.
func (r *Remote) Access(need Rights, offset, size uint64, fn func(mem []byte)) error {
	return r.route.access(need, offset, size, fn)
}

// Pin is Access without an end, for copies that the kernel makes or that take long: the memory that the key covers stays in place until Unpin, also if the peer
// ends. It checks what an operation checks, once, and fails where the memory is not mapped for need. What is held that long the peer cannot
// take back, so pin for one command and not for a connection.
func (r *Remote) Pin(need Rights) (mem []byte, err error) { return r.route.pin(need) }

// Unpin ends one Pin that succeeded.
func (r *Remote) Unpin() { r.route.unpin() }

// MaxPostBytes is the most that one Post takes.
const MaxPostBytes = fragmentBytes

// Post is a Put that the owner does not answer: src is the caller's again when it returns. It never waits, and takes no operation: ErrBackpressure says that the link has
// no room now and that nothing was sent. Whether the owner took it is not told; Fence and Flush order it as any Put.
func (r *Remote) Post(src []byte, offset uint64) error {
	if len(src) > MaxPostBytes {
		return r.errAt("post", fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(src), MaxPostBytes))
	}
	return r.route.post(src, offset)
}

// Ring is a Put of an aligned word of 4 or 8 bytes that the owner's pollers see soon, also if its leader sleeps: a doorbell. It does not wait
// for the owner: an error says that the word was not sent. What was put by stores into mapped memory before, whoever sees the word sees too.
func (r *Remote) Ring(offset uint64, width int, v uint64) error {
	return r.route.ring(offset, width, v)
}

// Put copies src to offset and returns when it is there: a Get by anybody sees it.
func (r *Remote) Put(ctx context.Context, src []byte, offset uint64) error {
	return r.route.put(ctx, src, offset)
}

// StartPut starts a Put. src must not change until the operation ends. At most 256 bytes are copied before it returns: their operation may be forgotten, and
// takes effect all the same.
func (r *Remote) StartPut(src []byte, offset uint64) Op { return r.route.startPut(src, offset) }

// Atomic performs op, as FetchAdd(1), on width (4 or 8) bytes at offset, and returns the old
// value. Atomics are atomic among each other, by whatever route they come.
func (r *Remote) Atomic(ctx context.Context, op AtomicOp, width int, offset uint64) (uint64, error) {
	return r.route.atomic(ctx, op, width, offset)
}

// StartAtomic starts an Atomic; Op.Value has the old value.
func (r *Remote) StartAtomic(op AtomicOp, width int, offset uint64) Op {
	return r.route.startAtomic(op, width, offset)
}
