package wasm

import (
	"bytes"
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// resetsSince is the ABI version from which on statics are as declared at every run. Before it a run finds what an earlier one left.
const resetsSince = 2

// statics are what a function's code declared to begin as: put back after each run. Of a module that says where they lie (as
// wasm-ld's __global_base and __data_end do) and runs nothing when it is instantiated, that is all there is; what it allocates it
// cannot find again without them. Of any other it is all of its memory.
type statics struct {
	some    bool
	from    uint64            // address
	image   []byte            // what lies there first …
	zeros   uint64            // … and how many zeros behind
	pages   uint64            // what memory.size says
	size    api.MutableGlobal // that; nil: it does not grow
	globals []variable
}

type variable struct {
	global api.MutableGlobal
	value  uint64
}

const (
	// maxStatics bounds what is copied after each run, and kept for that: the start functions of TinyGo and Rust leave 10 to 200 KiB.
	maxStatics = 4 << 20
	// longZeros is how many zeros are dropped rather than written: it takes about as long to write as many as one system call
	// and the page faults of what the next run touches.
	longZeros = 256 << 10
)

// remember notes how an instance begins, after its start functions.
func (in *Instance) remember() error {
	p := in.binding.program
	if !p.resets {
		return nil
	}
	s := &in.statics
	for _, name := range p.module.Variables() {
		g := in.global(name)
		s.globals = append(s.globals, variable{g, g.Get()})
	}
	size := in.global(wasmcode.ExportHeapPages)
	if s.pages = size.Get(); p.module.Grows {
		s.size = size
	}
	from, to := uint64(p.module.Statics.From), uint64(p.module.Statics.To)
	begins := p.module.Start >= 0 || p.module.Init >= 0
	if begins {
		from, to = 0, s.pages*pageBytes
	}
	first := in.mem[from:in.memory.End(from, to)]
	if n := len(first); n > maxStatics {
		return &CodeError{fmt.Errorf("its statics have %d bytes that are not zero when it begins; at most %d are put back after each run", n, maxStatics)}
	}
	if begins {
		s.image = bytes.Clone(first)
	} else { // the same for all
		p.staticsOnce.Do(func() { p.statics = bytes.Clone(first) })
		s.image = p.statics
	}
	s.from, s.zeros = from, to-from-uint64(len(s.image))
	s.some = len(s.globals) > 0 || to > from || s.size != nil
	if s.zeros > longZeros { // what touches one would get 2 MiB of zeros each time
		return in.memory.Small(from&^(pageBytes-1), to&^(pageBytes-1))
	}
	return nil
}

// reset puts the statics back.
func (in *Instance) reset() error {
	s := &in.statics
	for i := range s.globals {
		s.globals[i].global.Set(s.globals[i].value)
	}
	zeros := s.from + uint64(copy(in.mem[s.from:], s.image))
	if err := in.zero(zeros, zeros+s.zeros); err != nil {
		return err
	}
	if s.size == nil {
		return nil
	}
	size := s.size.Get()
	s.size.Set(s.pages)
	return in.zero(s.pages*pageBytes, size*pageBytes)
}

// zero makes a part of the heap zero.
func (in *Instance) zero(from, to uint64) error {
	if from == to {
		return nil
	}
	if to-from <= longZeros {
		clear(in.mem[from:to])
		return nil
	}
	first, last := pages(from), to&^(pageBytes-1)
	clear(in.mem[from:first])
	clear(in.mem[last:to])
	if err := in.memory.Discard(first, last); err != nil {
		return fmt.Errorf("wasm: zero %d bytes of statics: %w", last-first, err)
	}
	return nil
}
