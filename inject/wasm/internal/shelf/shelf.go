// Package shelf takes wazero's machine code from it, and gives it back, in memory.
//
// wazero can keep what it compiles in a directory only: it syncs each file that it writes, nobody hears what it wrote, and a process that compiles for
// others cannot do without rights to files. Behind its compilation cache, however, is a small interface, in a field that it does not export. New puts a
// Shelf there. Should another version of wazero have no such field, New says so, and machine code is made anew wherever it is needed.
package shelf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/tetratelabs/wazero"
)

// Code is machine code of one module, in wazero's format.
type Code struct {
	Name string // wazero's: it depends on the module and the processor
	Data []byte
}

// Shelf is for one compilation at a time.
type Shelf struct {
	offered, made Code
	only          bool // nothing is compiled if what is offered is not the module's
}

// ErrUnknown says that this wazero is not one that New knows.
var ErrUnknown = errors.New("wasm: this version of wazero keeps machine code in another way")

// ErrOther says that Insist was given another module's code.
var ErrOther = errors.New("wasm: this is another module's machine code, or another version's")

// field is where wazero.cache has what it keeps files in.
const field = "fileCache"

// New makes a cache for a runtime, and its shelf.
func New() (*Shelf, wazero.CompilationCache, error) {
	cache, s := wazero.NewCompilationCache(), &Shelf{}
	v, files := reflect.ValueOf(cache), reflect.ValueOf(&files{s})
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, nil, fmt.Errorf("%w: its cache is a %T", ErrUnknown, cache)
	}
	f := v.Elem().FieldByName(field)
	if !f.IsValid() || f.Kind() != reflect.Interface || !files.Type().Implements(f.Type()) {
		return nil, nil, fmt.Errorf("%w: its cache has no %s that a shelf can be", ErrUnknown, field)
	}
	reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Set(files)
	return s, cache, nil
}

// Offer puts code on the shelf that the next compilation takes, if it is the module's, and takes away whatever lies there. The shelf keeps its bytes.
func (s *Shelf) Offer(c Code) { *s = Shelf{offered: c} }

// Insist is Offer, but the next compilation fails with ErrOther if the code is not the module's.
func (s *Shelf) Insist(c Code) { *s = Shelf{offered: c, only: true} }

// Made is what was compiled since the last Offer; false: nothing, as what was offered was taken.
func (s *Shelf) Made() (Code, bool) { return s.made, s.made.Name != "" }

// files is what wazero takes for its directory.
type files struct{ s *Shelf }

func (f *files) Get(key [32]byte) (io.ReadCloser, bool, error) {
	if f.s.offered.Name != hex.EncodeToString(key[:]) {
		return nil, false, f.s.other()
	}
	return io.NopCloser(bytes.NewReader(f.s.offered.Data)), true, nil
}

func (f *files) Add(key [32]byte, content io.Reader) error {
	data, err := io.ReadAll(content)
	if err == nil {
		f.s.made = Code{hex.EncodeToString(key[:]), data}
	}
	return err
}

func (f *files) Delete([32]byte) error {
	f.s.offered = Code{}
	return f.s.other()
}

// other is what a compilation fails with that finds no code of its module; nil: it makes some.
func (s *Shelf) other() error {
	if s.only {
		return ErrOther
	}
	return nil
}
