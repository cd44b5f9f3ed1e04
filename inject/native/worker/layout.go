package worker

import (
	"encoding/binary"
	"fmt"

	"github.com/wherry-fabric/wherry/inject/elf"
)

// Where things lie in a worker. They are far enough apart for their limits, and all code is within
// the reach of a call (128 MiB on aarch64). Base is above what programs are linked to and below what kernels give them; with
// windows, all ends within the 256 GiB that the smallest address space of the three processors has.
const (
	Base        = 0x10_0000_0000
	ContextAt   = Base + 0x0080_0000
	FunctionAt  = Base + 0x0100_0000 // code, read-only data, statics: up to elf.MaxImageBytes
	InitialAt   = Base + 0x4800_0000 // what statics begin as, up to twice elf.MaxBytes and three segments
	StackAt     = Base + 0x5000_0000 // runtime.c finds it by PayloadAt
	PayloadAt   = Base + 0x6000_0000
	ScratchAt   = Base + 0x8000_0000
	WindowsAt   = Base + 0x1_0000_0000
	WindowsEnd  = Base + 0x20_0000_0000
	StackBytes  = 1 << 20               // as much as a wasm function's in practice; a function's own frames are bounded by 64 KiB there
	MaxPayload  = ScratchAt - PayloadAt // limits beyond these cannot be had
	MaxScratch  = WindowsAt - ScratchAt
	MaxWindows  = 240      // of the context, and of descriptors in one message (253)
	PageBytes   = 64 << 10 // everything is aligned to
	MaxRanges   = 4096
	nearAt      = 52
	rangesAt    = 56 + 24*MaxWindows // in a context
	contextSize = rangesAt + 8 + 16*MaxRanges
)

// Entry is what a function's object defines, and Prefix goes before a host call's name in what it leaves undefined.
const (
	Entry  = "wherry_main"
	Prefix = "wherry_"
)

// Runtime is a worker's own code at its address.
type Runtime struct {
	Image *elf.Image
	Page  uint64 // offset of the page in its data segment
}

// NewRuntime makes it for this processor. base is Base, or where all of what lies between Base and WindowsAt lies in
// a process that has other things there.
func NewRuntime(base uint64) (*Runtime, error) {
	if Arch == "" {
		return nil, fmt.Errorf("no worker runs on this processor, only on amd64, arm64 and riscv64")
	}
	return runtimeOf(object, Arch, base)
}

func runtimeOf(object []byte, arch string, base uint64) (*Runtime, error) {
	o, err := elf.Parse(object, elf.Rules{Arch: arch, Entry: "wherry_worker"})
	if err != nil {
		return nil, fmt.Errorf("the worker's own code: %w", err)
	}
	img, err := o.Place(base, func(string) (uint64, bool) { return 0, false })
	if err != nil {
		return nil, fmt.Errorf("the worker's own code: %w", err)
	}
	page, ok := img.Address("page")
	if !ok || page < base+img.Data || img.Size > ContextAt-Base {
		return nil, fmt.Errorf("the worker's own code takes %d bytes, with the page at %#x", img.Size, page)
	}
	return &Runtime{Image: img, Page: page - base - img.Data}, nil
}

// Context is what a worker is told before it starts.
type Context struct {
	Entry     uint64
	Data      uint64 // statics
	DataBytes uint64 // of them that do not begin as zeros
	ZeroBytes uint64 // of them, after DataBytes rounded up to 8, that the worker has to zero before each run; a multiple of 8
	Windows   []Window
}

// Window is one in a worker's address space; size 0: absent.
type Window struct {
	Addr, Size uint64
	Writable   bool
}

// Write lays c out as runtime.c has it, with base as NewRuntime's.
func (c *Context) Write(to []byte, base uint64) {
	le := binary.LittleEndian
	for i, v := range []uint64{c.Entry, c.Data, InitialAt - Base + base, (c.DataBytes + 7) &^ 7, c.ZeroBytes, PayloadAt - Base + base, uint64(len(c.Windows))} {
		le.PutUint64(to[8*i:], v)
	}
	for i, w := range c.Windows {
		at := to[56+24*i:]
		le.PutUint64(at, w.Addr)
		le.PutUint64(at[8:], w.Size)
		if w.Writable {
			le.PutUint32(at[16:], 1)
		}
	}
}

// WriteRanges adds which rows each element holds, from element 0 on: at most MaxRanges, each beginning where
// the one before it ends or later.
func WriteRanges(context []byte, ranges [][2]uint64) {
	le := binary.LittleEndian
	for i, r := range ranges {
		le.PutUint64(context[rangesAt+8+16*i:], r[0])
		le.PutUint64(context[rangesAt+8+16*i+8:], r[1])
	}
	le.PutUint64(context[rangesAt:], uint64(len(ranges)))
}

// WriteNear adds that the node is to be asked about near windows.
func WriteNear(context []byte) { binary.LittleEndian.PutUint32(context[nearAt:], 1) }

// ContextBytes is what it takes.
const ContextBytes = (contextSize + PageBytes - 1) &^ (PageBytes - 1)
