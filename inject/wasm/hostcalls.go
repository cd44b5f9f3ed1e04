package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm/internal/linear"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// errOutOfBounds says of a checked store what the engine would say.
var errOutOfBounds = errors.New("out of bounds memory access")

// readable is the n bytes at ptr, or nil and false if they leave the memory.
func (in *Instance) readable(ptr, n uint64) ([]byte, bool) {
	ptr, n = ptr&math.MaxUint32, n&math.MaxUint32
	if n == 0 { // wherever that lies, as in native code
		return in.mem[:0:0], true
	}
	if ptr+n > uint64(len(in.mem)) {
		return nil, false
	}
	return in.mem[ptr : ptr+n : ptr+n], true
}

// writable is like readable; it refuses read-only windows with ErrRights, and scratch that was not asked for with ErrMemory.
func (in *Instance) writable(ptr, n uint64) ([]byte, abi.Status) {
	b, ok := in.readable(ptr, n)
	if !ok {
		return nil, abi.ErrMemory
	}
	end := ptr&math.MaxUint32 + uint64(len(b))
	switch {
	case len(b) == 0 || end <= in.written():
		return b, abi.OK
	case end > in.binding.layout.store:
		return nil, abi.ErrRights
	}
	return nil, abi.ErrMemory
}

// callSelf: self() -> element
func (in *Instance) callSelf(st []uint64) { st[0] = uint64(in.host.Self()) }

// callElements: elements() -> count
func (in *Instance) callElements(st []uint64) { st[0] = uint64(in.host.Elements()) }

// callOwner: owner(dataset, row, local_out) -> element, or a negative status
func (in *Instance) callOwner(st []uint64) {
	out, code := in.writable(st[2], 8)
	if code != abi.OK {
		st[0] = status(code)
		return
	}
	element, local, code := in.host.Owner(uint32(st[0]), st[1])
	if code == abi.OK && element > math.MaxInt32 {
		code = abi.ErrArgument
	}
	if code != abi.OK {
		st[0] = status(code)
		return
	}
	binary.LittleEndian.PutUint64(out, local)
	st[0] = uint64(element)
}

// callRow: row(dataset, element, local) -> row, or a negative status
func (in *Instance) callRow(st []uint64) {
	row, code := in.host.Row(uint32(st[0]), uint32(st[1]), st[2])
	if code == abi.OK && row > math.MaxInt64 {
		code = abi.ErrArgument
	}
	if code != abi.OK {
		row = uint64(int64(code))
	}
	st[0] = row
}

// callShardRows: shard_rows(dataset, element, out {u64 first, u64 count}) -> status
func (in *Instance) callShardRows(st []uint64) {
	out, code := in.writable(st[2], 16)
	if code == abi.OK {
		var first, count uint64
		if first, count, code = in.host.ShardRows(uint32(st[0]), uint32(st[1])); code == abi.OK {
			binary.LittleEndian.PutUint64(out, first)
			binary.LittleEndian.PutUint64(out[8:], count)
		}
	}
	st[0] = status(code)
}

// windowWritable is bit 0 of the flags that the window call returns.
const windowWritable = 1

func (w *mapped) flags() uint32 {
	if w.writable {
		return windowWritable
	}
	return 0
}

// callWindow: window(index, out {u32 addr, u32 flags, u64 size}) -> status
func (in *Instance) callWindow(st []uint64) {
	windows := in.binding.layout.windows
	i := st[0] & math.MaxUint32
	out, code := in.writable(st[1], 16)
	if code == abi.OK && (i >= uint64(len(windows)) || windows[i].size == 0) {
		code = abi.ErrNoWindow
	}
	if code == abi.OK && windows[i].slides() {
		code = abi.ErrLimit
	}
	if code == abi.OK {
		w := &windows[i]
		binary.LittleEndian.PutUint32(out, uint32(w.addr))
		binary.LittleEndian.PutUint32(out[4:], w.flags())
		binary.LittleEndian.PutUint64(out[8:], w.size)
	}
	st[0] = status(code)
}

// callWindowAt: window_at(index, offset, out {u32 addr, u32 flags, u64 first, u64 size, u64 total}) -> status
func (in *Instance) callWindowAt(st []uint64) {
	windows := in.binding.layout.windows
	i, offset := st[0]&math.MaxUint32, st[1]
	out, code := in.writable(st[2], 32)
	switch {
	case code != abi.OK:
	case i >= uint64(len(windows)) || windows[i].size == 0:
		code = abi.ErrNoWindow
	case offset >= windows[i].size:
		code = abi.ErrArgument
	default:
		w, first := &windows[i], uint64(0)
		switch {
		case w.staged:
			in.show(int(i))
		case w.slides():
			first = in.slide(int(i), offset)
		}
		binary.LittleEndian.PutUint32(out, uint32(w.addr))
		binary.LittleEndian.PutUint32(out[4:], w.flags())
		binary.LittleEndian.PutUint64(out[8:], first)
		binary.LittleEndian.PutUint64(out[16:], min(w.span, w.size-first))
		binary.LittleEndian.PutUint64(out[24:], w.size)
	}
	st[0] = status(code)
}

// slide has the part of a window mapped that has the byte at offset, and what follows it, and returns where the part begins.
func (in *Instance) slide(i int, offset uint64) (first uint64) {
	w, first := &in.binding.layout.windows[i], in.parts[i]
	switch {
	case offset >= first && min(offset+partAhead, w.size) <= first+w.span:
		return first
	case offset < first: // it goes backwards, so what lies before is wanted next
		first = pages(offset+partAhead) - min(w.span, pages(offset+partAhead))
	default:
		first = offset &^ (pageBytes - 1)
	}
	first = min(first, pages(w.size)-w.span) // no page of the part lies behind the file's end
	in.remap(i, first)
	in.parts[i] = first
	return first
}

// show has a staged window mapped.
func (in *Instance) show(i int) {
	if in.staged != i {
		in.remap(i, 0)
		in.staged = i
		if in.binding.shown[i].Add(1) == 1 {
			in.gather(i)
		}
	}
}

// gather puts a staged window on huge pages, when a binding shows it first. To map it is then a step for each 2 MiB and not for each 4 KiB, which was a third of a
// scan's time; where they lie there already it takes a microsecond each. Others get the processor between two, as in touch.
func (in *Instance) gather(i int) {
	w := &in.binding.layout.windows[i]
	for from, end := w.addr, w.addr+w.span; end-from >= linear.HugeBytes; from += linear.HugeBytes {
		_ = in.copies(linear.HugeBytes)
		if in.memory.Gather(from, from+linear.HugeBytes) != nil {
			return // the kernel cannot, or has none to give
		}
	}
}

// remap maps the part of window i that begins at its byte first.
func (in *Instance) remap(i int, first uint64) {
	_ = in.copies(slideBytes)
	w, window := &in.binding.layout.windows[i], in.binding.windows[i]
	if err := in.memory.Slide(linear.View{At: w.addr, Bytes: w.span, FD: window.FD, Offset: window.Offset + int64(first), Shared: w.writable}); err != nil {
		panic(&StoppedError{fmt.Errorf("window %d: %w", i, err)}) // the memory may have a gap now; nothing runs in it any more
	}
}

// slideBytes is how many copied bytes take as long as mapping a part.
const slideBytes = 64 << 10

// callPayload: payload(out {u32 addr, u32 size}) -> status
func (in *Instance) callPayload(st []uint64) {
	out, code := in.writable(st[0], 8)
	if code == abi.OK {
		binary.LittleEndian.PutUint32(out, uint32(in.binding.layout.inbox))
		binary.LittleEndian.PutUint32(out[4:], in.payload)
	}
	st[0] = status(code)
}

// callScratch: scratch(size) -> address, 0 if refused. The address is the same
// for the whole invocation; asking for more extends it by zeroed bytes.
func (in *Instance) callScratch(st []uint64) {
	n := st[0]
	st[0] = 0
	if n > in.limits.ScratchBytes {
		in.over(abi.LimitScratch)
		return
	}
	if n == 0 || n > in.scratch && !in.enlarge(n) {
		return
	}
	st[0] = in.binding.layout.scratch
}

// enlarge gives the invocation n bytes of scratch, more than it has: room in the engine first, then the host's word, then the
// right to write there. Before there is one, at the instance's start, there is none: what it is charged would never be given back.
func (in *Instance) enlarge(n uint64) bool {
	if !in.running {
		return false
	}
	short := in.slot.Extend(n)
	code, err := in.host.Scratch(n, short)
	if err != nil {
		panic(&StoppedError{err})
	}
	if short != nil || code != abi.OK {
		return false
	}
	had, end := in.scratch, in.written()
	in.scratch = n
	in.allow()
	if had > 0 && in.memory.Huge(end, in.written()) { // what a function asks for in addition it is about to use
		in.huge = true
		in.touch(end, in.written())
	}
	return true
}

// touch makes [from, to), which may be on huge pages, resident. The first store to a huge page takes up to a millisecond, a thousand times what its fuel stands for: a
// slice could make five hundred of them. Here there is a look before each. Where the kernel cannot do it the pages are small ones.
func (in *Instance) touch(from, to uint64) {
	for ; from < to; from += linear.HugeBytes {
		end := min(from+linear.HugeBytes, to)
		_ = in.copies(int(end - from))
		if in.memory.Touch(from, end) != nil {
			_ = in.memory.Small(from, to) // an error: there are no huge ones
			return
		}
	}
}

// written is where the memory ends that the function may write to.
func (in *Instance) written() uint64 { return in.binding.layout.scratch + pages(in.scratch) }

// allow tells the function's code of it.
func (in *Instance) allow() { in.stores.Set(in.written()) }

// over refuses a host call for a limit and tells the host which.
func (in *Instance) over(field string) abi.Status {
	p := in.binding.program
	return abi.Refused(in.host, field, in.limits, &p.limits, &p.engine.config.Ceilings)
}

// send runs a host call that takes bytes from the function's memory, at most limit of them by field, and has the run pay for them.
func (in *Instance) send(ptr, n uint64, limit uint64, field string, call func(data []byte) abi.Status) abi.Status {
	data, ok := in.readable(ptr, n)
	switch {
	case !ok:
		return abi.ErrMemory
	case uint64(len(data)) > limit:
		return in.over(field)
	}
	_ = in.copies(len(data))
	return call(data)
}

// callReply: reply(ptr, len) -> status
func (in *Instance) callReply(st []uint64) {
	data, ok := in.readable(st[0], st[1])
	if !ok {
		st[0] = status(abi.ErrMemory)
		return
	}
	_ = in.copies(int(min(uint64(len(data)), in.limits.ReplyBytes))) // what is longer is refused
	st[0] = status(in.reply(data))
}

func (in *Instance) reply(data []byte) abi.Status {
	if in.replyBytes+uint64(len(data)) > in.limits.ReplyBytes {
		return in.over(abi.LimitReply)
	}
	in.replyBytes += uint64(len(data))
	return in.host.Reply(data)
}

// mailed reports whether the function left a reply in its mailbox.
func (in *Instance) mailed() bool {
	return binary.LittleEndian.Uint64(in.box) != 0
}

// deliver sends what is in the mailbox; last says that the run has succeeded. The function can write there itself, so
// a message that is too long, or that it imports no call for, is nothing but nonsense of its own.
func (in *Instance) deliver(last bool) {
	box := in.box[:wasmcode.MailboxBytes]
	head := binary.LittleEndian.Uint64(box)
	n, to := uint32(head)-1, uint32(head>>32)
	binary.LittleEndian.PutUint64(box, 0)
	if n > wasmcode.MailBytes || to == 0 && !in.replies || to != 0 && !in.forwards {
		return
	}
	var st abi.Status
	if data := box[8 : 8+n : 8+n]; to == 0 {
		st = in.reply(data)
	} else {
		st = in.forward(0, to-1, data, last)
	}
	if in.mail == abi.OK {
		in.mail = st
	}
}

// callReplyPart: reply_part(ptr, len) -> status
func (in *Instance) callReplyPart(st []uint64) {
	code := in.send(st[0], st[1], in.limits.ReplyBytes-in.replyBytes, abi.LimitReply, in.host.ReplyPart)
	if code == abi.OK {
		in.replyBytes += st[1] & math.MaxUint32
	}
	st[0] = status(code)
}

// callForward: forward(function, element, ptr, len) -> status
func (in *Instance) callForward(st []uint64) {
	code := abi.ErrMemory
	if data, ok := in.readable(st[2], st[3]); ok {
		_ = in.copies(int(min(uint64(len(data)), in.limits.PayloadBytes)))
		code = in.forward(uint32(st[0]), uint32(st[1]), data, false)
	}
	st[0] = status(code)
}

func (in *Instance) forward(function, element uint32, data []byte, last bool) abi.Status {
	if uint64(len(data)) > in.limits.PayloadBytes {
		return in.over(abi.LimitPayload)
	}
	if last {
		return in.host.Onward(element, data)
	}
	return in.host.Forward(function, element, data)
}

// callFork: fork(function, element, ptr, len) -> status
func (in *Instance) callFork(st []uint64) {
	if in.forks >= in.limits.Forks {
		st[0] = status(in.over(abi.LimitForks))
		return
	}
	function, element := uint32(st[0]), uint32(st[1])
	code := in.send(st[2], st[3], in.limits.PayloadBytes, abi.LimitPayload, func(data []byte) abi.Status {
		return in.host.Fork(function, element, data)
	})
	if code == abi.OK {
		in.forks++
	}
	st[0] = status(code)
}

// callGet: get(element, window, offset, ptr, len) -> status
func (in *Instance) callGet(st []uint64) {
	dst, code := in.writable(st[3], st[4])
	if code == abi.OK {
		code, _ = abi.Pieces(st[2], dst, in.copies, func(offset uint64, piece []byte) abi.Status {
			return in.host.Get(uint32(st[0]), uint32(st[1]), offset, piece)
		})
	}
	st[0] = status(code)
}

// callGetNear: get_near(element, window, offset, ptr, len) -> status
func (in *Instance) callGetNear(st []uint64) {
	dst, code := in.writable(st[3], st[4])
	if code == abi.OK {
		code, _ = abi.Pieces(st[2], dst, in.copies, func(offset uint64, piece []byte) abi.Status {
			return in.host.GetNear(uint32(st[0]), uint32(st[1]), offset, piece)
		})
	}
	st[0] = status(code)
}

// callPut: put(element, window, offset, ptr, len) -> status
func (in *Instance) callPut(st []uint64) {
	src, ok := in.readable(st[3], st[4])
	code := abi.ErrMemory
	if ok {
		code, _ = abi.Pieces(st[2], src, in.copies, func(offset uint64, piece []byte) abi.Status {
			return in.host.Put(uint32(st[0]), uint32(st[1]), offset, piece)
		})
	}
	st[0] = status(code)
}

// callAtomic: atomic(element, window, offset, op, width, operand, compare, old_out) -> status
func (in *Instance) callAtomic(st []uint64) {
	op, width := abi.AtomicOp(st[3]), uint32(st[4])
	out, code := in.writable(st[7], 8)
	if code == abi.OK && (op < abi.AtomicAdd || op > abi.AtomicXor || width != 4 && width != 8 || st[2]%uint64(width) != 0) {
		code = abi.ErrArgument
	}
	if code == abi.OK {
		var old uint64
		old, code = in.host.Atomic(uint32(st[0]), uint32(st[1]), st[2], op, width, st[5], st[6])
		if code == abi.OK {
			binary.LittleEndian.PutUint64(out, old)
		}
	}
	st[0] = status(code)
}

// callLog: log(ptr, len). What exceeds the limit, or leaves the memory, is cut off.
func (in *Instance) callLog(st []uint64) {
	text, ok := in.readable(st[0], st[1])
	if !ok || in.logBytes >= in.limits.LogBytes || len(text) == 0 {
		return
	}
	text = text[:min(len(text), int(in.limits.LogBytes-in.logBytes))]
	in.logBytes += uint32(len(text))
	_ = in.copies(len(text))
	in.host.Log(text)
}

// callNow: now() -> Unix nanoseconds
func (in *Instance) callNow(st []uint64) { st[0] = in.host.NowNs() }

// callRemaining: remaining() -> nanoseconds
func (in *Instance) callRemaining(st []uint64) { st[0] = in.host.RemainingNs() }

// callRandom: random() -> 64 bits
func (in *Instance) callRandom(st []uint64) { st[0] = in.host.Random() }

// callDerive: derive(ptr, len) -> function, or a negative status
func (in *Instance) callDerive(st []uint64) {
	constants, ok := in.readable(st[0], st[1])
	if !ok {
		st[0] = status(abi.ErrMemory)
		return
	}
	function, code := in.host.Derive(constants)
	if st[0] = uint64(function); code != abi.OK {
		st[0] = status(code)
	}
}

// callConstants: constants(ptr, len) -> status
func (in *Instance) callConstants(st []uint64) {
	dst, code := in.writable(st[0], st[1])
	if code == abi.OK {
		code = abi.CopyConstants(in.host, dst)
	}
	st[0] = status(code)
}

// callAssemble: assemble(ptr, len) -> function, or a negative status
func (in *Instance) callAssemble(st []uint64) {
	code, ok := in.readable(st[0], st[1])
	if !ok {
		st[0] = status(abi.ErrMemory)
		return
	}
	_ = in.copies(abi.AssembleCost * min(len(code), abi.MaxAssembledBytes))
	function, err := in.host.Assemble(code)
	if st[0] = uint64(function); err != abi.OK {
		st[0] = status(err)
	}
}

// startHost serves host calls while an instance is being prepared: there is no
// invocation yet, so there is nothing to act on.
type startHost struct{ stop func() error }

func (h startHost) Tick() error                                      { return h.stop() }
func (startHost) Self() uint32                                       { return 0 }
func (startHost) Elements() uint32                                   { return 0 }
func (startHost) ShardRows(_, _ uint32) (uint64, uint64, abi.Status) { return 0, 0, abi.ErrUnsupported }
func (startHost) Owner(uint32, uint64) (uint32, uint64, abi.Status)  { return 0, 0, abi.ErrUnsupported }
func (startHost) Row(_, _ uint32, _ uint64) (uint64, abi.Status)     { return 0, abi.ErrUnsupported }
func (startHost) Reply([]byte) abi.Status                            { return abi.ErrUnsupported }
func (startHost) ReplyPart([]byte) abi.Status                        { return abi.ErrUnsupported }
func (startHost) Onward(uint32, []byte) abi.Status                   { return abi.ErrUnsupported }
func (startHost) Forward(_, _ uint32, _ []byte) abi.Status           { return abi.ErrUnsupported }
func (startHost) Fork(_, _ uint32, _ []byte) abi.Status              { return abi.ErrUnsupported }
func (startHost) Derive([]byte) (uint32, abi.Status)                 { return 0, abi.ErrUnsupported }
func (startHost) Assemble([]byte) (uint32, abi.Status)               { return 0, abi.ErrUnsupported }
func (startHost) Constants() []byte                                  { return nil }
func (startHost) Get(uint32, uint32, uint64, []byte) abi.Status      { return abi.ErrUnsupported }
func (startHost) GetNear(uint32, uint32, uint64, []byte) abi.Status  { return abi.ErrUnsupported }
func (startHost) Put(uint32, uint32, uint64, []byte) abi.Status      { return abi.ErrUnsupported }
func (startHost) Atomic(uint32, uint32, uint64, abi.AtomicOp, uint32, uint64, uint64) (uint64, abi.Status) {
	return 0, abi.ErrUnsupported
}
func (startHost) Scratch(uint64, error) (abi.Status, error) { return abi.ErrUnsupported, nil }
func (startHost) Log([]byte)                                {}
func (startHost) NowNs() uint64                             { return uint64(time.Now().UnixNano()) }
func (startHost) Random() uint64                            { return rand.Uint64() }
func (startHost) RemainingNs() uint64                       { return 0 }
