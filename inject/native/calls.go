package native

import (
	"fmt"
	"math"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/native/worker"
	"github.com/wherry-fabric/wherry/internal/invariants"
)

// answer is what a host call gives back; of one that returns no status, result[0] is what it returns.
type answer struct {
	status abi.Status
	number uint32 // instead of the status, if that is OK: an element
	result [2]uint64
}

// hostCall is one of the ABI's, with what carries it out; nil: a worker answers it by itself.
type hostCall struct {
	abi.Call
	run func(*instance, *[8]uint64) (answer, error)
}

// carried are the host calls that the node carries out, by name, in their newest form. Those that are not there a worker answers by itself.
func carried(name string) func(*instance, *[8]uint64) (answer, error) {
	switch name {
	case "owner":
		return (*instance).callOwner
	case "row":
		return (*instance).callRow
	case "shard_rows":
		return (*instance).callShardRows
	case "scratch":
		return (*instance).callScratch
	case "reply":
		return (*instance).callReply
	case "reply_part":
		return (*instance).callReplyPart
	case "forward":
		return (*instance).callForward
	case "fork":
		return (*instance).callFork
	case "get":
		return (*instance).callGet
	case "get_near":
		return (*instance).callGetNear
	case "put":
		return (*instance).callPut
	case "atomic":
		return (*instance).callAtomic
	case "log":
		return (*instance).callLog
	case "remaining":
		return (*instance).callRemaining
	case "random":
		return (*instance).callRandom
	case "derive":
		return (*instance).callDerive
	case "constants":
		return (*instance).callConstants
	case "assemble":
		return (*instance).callAssemble
	}
	return nil
}

// call carries out one host call. An error ends the run.
func (in *instance) call(number uint32) error {
	calls := in.bound.program.engine.calls
	if number >= uint32(len(calls)) || calls[number].run == nil {
		return &TrapError{Text: fmt.Sprintf("it made a host call %d, which there is not", number)}
	}
	c := &calls[number]
	in.args = in.process.page.Args()
	var err error
	if in.process.inside == nil {
		err = in.charge(callTime)
	} else {
		err = in.lapse()
	}
	if err != nil {
		return err
	}
	a, err := c.run(in, &in.args)
	if err != nil {
		return err
	}
	if invariants.Enabled && c.Result == "int32_t" && a.status < 0 && !c.May(a.status) {
		panic(fmt.Sprintf("native: %s answers %d, which is none of its errors in inject/abi", c.Name, a.status))
	}
	st := int32(a.status)
	if st == 0 {
		st = int32(a.number)
	}
	in.process.page.Answer(st, a.result[:]...)
	return nil
}

// region is a part of the worker's memory that the node has mapped.
type region struct {
	addr     uint64
	mem      []byte
	writable bool
}

// regions are where host calls may point to.
func (in *instance) regions(yield func(region) bool) {
	p, b := in.process, in.bound
	img, base := p.image, p.base-worker.Base
	for _, r := range [...]region{
		{worker.StackAt + base, p.stack, true},
		{img.Base + img.Data, p.statics, true},
		{worker.PayloadAt + base, p.payload, true},
		{worker.ScratchAt + base, p.scratch[:min(in.scratch, uint64(len(p.scratch)))], true},
		{img.Base, img.Bytes[:img.Data], false},
	} {
		if !yield(r) {
			return
		}
	}
	for i := range b.windows {
		if w := &b.windows[i]; w.Size > 0 && !yield(region{w.addr, w.mem[:w.Size], w.Writable}) {
			return
		}
	}
}

// memory is the n bytes at an address of the worker's. They may change at any time: what is read is copied once.
func (in *instance) memory(ptr, n uint64, write bool) ([]byte, abi.Status) {
	n &= math.MaxUint32
	if n == 0 {
		return nil, abi.OK
	}
	for r := range in.regions {
		if off := ptr - r.addr; ptr >= r.addr && off < uint64(len(r.mem)) {
			switch {
			case n > uint64(len(r.mem))-off:
				return nil, abi.ErrMemory
			case write && !r.writable:
				return nil, abi.ErrRights
			}
			return r.mem[off : off+n : off+n], abi.OK
		}
	}
	return nil, abi.ErrMemory
}

// over refuses a host call for a limit and tells the host which.
func (in *instance) over(field string) abi.Status {
	p := in.bound.program
	return abi.Refused(in.host, field, in.limits, &p.limits, &p.engine.config.Ceilings)
}

// deliver sends the reply or forward that waits in the page; last says that the run has succeeded.
func (in *instance) deliver(last bool) {
	kind, element, data := in.process.page.Mail(&in.letter)
	st := abi.OK
	switch kind {
	case worker.MailReply:
		st = in.reply(data)
	case worker.MailForward:
		st = in.forward(0, element, data, last)
	}
	if in.mail == abi.OK {
		in.mail = st
	}
}

func (in *instance) reply(data []byte) abi.Status {
	if in.replyBytes+uint64(len(data)) > in.limits.ReplyBytes {
		return in.over(abi.LimitReply)
	}
	in.replyBytes += uint64(len(data))
	return in.host.Reply(data)
}

func (in *instance) forward(function, element uint32, data []byte, last bool) abi.Status {
	if uint64(len(data)) > in.limits.PayloadBytes {
		return in.over(abi.LimitPayload)
	}
	if last && function == 0 {
		return in.host.Onward(element, data)
	}
	return in.host.Forward(function, element, data)
}

func (in *instance) callOwner(a *[8]uint64) (answer, error) {
	element, local, st := in.host.Owner(uint32(a[0]), a[1])
	if st == abi.OK && element > math.MaxInt32 {
		st = abi.ErrArgument
	}
	return answer{status: st, number: element, result: [2]uint64{local}}, nil
}

func (in *instance) callRow(a *[8]uint64) (answer, error) {
	row, st := in.host.Row(uint32(a[0]), uint32(a[1]), a[2])
	if st == abi.OK && row > math.MaxInt64 {
		st = abi.ErrArgument
	}
	if st != abi.OK {
		row = uint64(int64(st))
	}
	return answer{result: [2]uint64{row}}, nil
}

func (in *instance) callShardRows(a *[8]uint64) (answer, error) {
	first, count, st := in.host.ShardRows(uint32(a[0]), uint32(a[1]))
	return answer{status: st, result: [2]uint64{first, count}}, nil
}

// callScratch extends the invocation's scratch: room in the engine first, then the host's word, then the memory.
func (in *instance) callScratch(a *[8]uint64) (answer, error) {
	n := a[0]
	switch {
	case n > in.limits.ScratchBytes || n > uint64(len(in.process.scratch)):
		in.over(abi.LimitScratch)
		return answer{}, nil
	case n == 0:
		return answer{}, nil
	case n > in.scratch:
		short := in.slot.Extend(n)
		st, err := in.host.Scratch(n, short)
		if err != nil {
			return answer{}, &StoppedError{err}
		}
		if short != nil || st != abi.OK {
			return answer{}, nil
		}
		if err := in.process.resizeScratch(n); err != nil {
			return answer{}, &WorkerError{fmt.Errorf("%d bytes of scratch: %w", n, err)}
		}
		in.scratch = n
	}
	return answer{result: [2]uint64{in.process.base - worker.Base + worker.ScratchAt}}, nil
}

// pays charges a run for bytes that a host call is about to send; what is over a limit is refused, and not sent.
func (in *instance) pays(data []byte, limit uint64) error {
	return in.copies(int(min(uint64(len(data)), limit)))
}

func (in *instance) callReply(a *[8]uint64) (answer, error) {
	data, st := in.memory(a[0], a[1], false)
	if st != abi.OK {
		return answer{status: st}, nil
	}
	if err := in.pays(data, in.limits.ReplyBytes); err != nil {
		return answer{}, err
	}
	return answer{status: in.reply(data)}, nil
}

func (in *instance) callReplyPart(a *[8]uint64) (answer, error) {
	data, st := in.memory(a[0], a[1], false)
	switch {
	case st != abi.OK:
	case uint64(len(data)) > in.limits.ReplyBytes-in.replyBytes:
		st = in.over(abi.LimitReply)
	default:
		if err := in.pays(data, in.limits.ReplyBytes); err != nil {
			return answer{}, err
		}
		if st = in.host.ReplyPart(data); st == abi.OK {
			in.replyBytes += uint64(len(data))
		}
	}
	return answer{status: st}, nil
}

func (in *instance) callForward(a *[8]uint64) (answer, error) {
	data, st := in.memory(a[2], a[3], false)
	if st != abi.OK {
		return answer{status: st}, nil
	}
	if err := in.pays(data, in.limits.PayloadBytes); err != nil {
		return answer{}, err
	}
	return answer{status: in.forward(uint32(a[0]), uint32(a[1]), data, false)}, nil
}

func (in *instance) callFork(a *[8]uint64) (answer, error) {
	data, st := in.memory(a[2], a[3], false)
	switch {
	case in.forks >= in.limits.Forks:
		st = in.over(abi.LimitForks)
	case st != abi.OK:
	case uint64(len(data)) > in.limits.PayloadBytes:
		st = in.over(abi.LimitPayload)
	default:
		if err := in.pays(data, in.limits.PayloadBytes); err != nil {
			return answer{}, err
		}
		if st = in.host.Fork(uint32(a[0]), uint32(a[1]), data); st == abi.OK {
			in.forks++
		}
	}
	return answer{status: st}, nil
}

func (in *instance) callGet(a *[8]uint64) (answer, error) {
	dst, st := in.memory(a[3], a[4], true)
	if st != abi.OK {
		return answer{status: st}, nil
	}
	st, err := abi.Pieces(a[2], dst, in.copies, func(offset uint64, piece []byte) abi.Status {
		return in.host.Get(uint32(a[0]), uint32(a[1]), offset, piece)
	})
	return answer{status: st}, err
}

func (in *instance) callGetNear(a *[8]uint64) (answer, error) {
	dst, st := in.memory(a[3], a[4], true)
	if st != abi.OK {
		return answer{status: st}, nil
	}
	st, err := abi.Pieces(a[2], dst, in.copies, func(offset uint64, piece []byte) abi.Status {
		return in.host.GetNear(uint32(a[0]), uint32(a[1]), offset, piece)
	})
	return answer{status: st}, err
}

func (in *instance) callPut(a *[8]uint64) (answer, error) {
	src, st := in.memory(a[3], a[4], false)
	if st != abi.OK {
		return answer{status: st}, nil
	}
	st, err := abi.Pieces(a[2], src, in.copies, func(offset uint64, piece []byte) abi.Status {
		return in.host.Put(uint32(a[0]), uint32(a[1]), offset, piece)
	})
	return answer{status: st}, err
}

func (in *instance) callAtomic(a *[8]uint64) (answer, error) {
	op, width := abi.AtomicOp(a[3]), uint32(a[4])
	if op < abi.AtomicAdd || op > abi.AtomicXor || width != 4 && width != 8 || a[2]%uint64(width) != 0 {
		return answer{status: abi.ErrArgument}, nil
	}
	old, st := in.host.Atomic(uint32(a[0]), uint32(a[1]), a[2], op, width, a[5], a[6])
	return answer{status: st, result: [2]uint64{old}}, nil
}

// callLog cuts off what exceeds the limit.
func (in *instance) callLog(a *[8]uint64) (answer, error) {
	text, st := in.memory(a[0], a[1], false)
	if st != abi.OK || in.logBytes >= in.limits.LogBytes || len(text) == 0 {
		return answer{}, nil
	}
	text = append([]byte(nil), text[:min(len(text), int(in.limits.LogBytes-in.logBytes))]...)
	in.logBytes += uint32(len(text))
	in.host.Log(text)
	return answer{}, nil
}

func (in *instance) callDerive(a *[8]uint64) (answer, error) {
	data, st := in.memory(a[0], a[1], false)
	if st != abi.OK {
		return answer{status: st}, nil
	}
	function, st := in.host.Derive(data) // which copies them once their length is right: a window can be as long as any
	return answer{status: st, number: function}, nil
}

func (in *instance) callConstants(a *[8]uint64) (answer, error) {
	dst, st := in.memory(a[0], a[1], true)
	if st == abi.OK {
		st = abi.CopyConstants(in.host, dst)
	}
	return answer{status: st}, nil
}

func (in *instance) callAssemble(a *[8]uint64) (answer, error) {
	code, st := in.memory(a[0], a[1], false)
	if st != abi.OK {
		return answer{status: st}, nil
	}
	if err := in.copies(abi.AssembleCost * min(len(code), abi.MaxAssembledBytes)); err != nil {
		return answer{}, err
	}
	function, st := in.host.Assemble(code)
	return answer{status: st, number: function}, nil
}

func (in *instance) callRandom(*[8]uint64) (answer, error) {
	return answer{result: [2]uint64{in.host.Random()}}, nil
}

func (in *instance) callRemaining(*[8]uint64) (answer, error) {
	return answer{result: [2]uint64{in.host.RemainingNs()}}, nil
}
