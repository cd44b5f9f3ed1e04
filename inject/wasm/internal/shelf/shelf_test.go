package shelf

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// module exports f, which answers n.
func module(n byte) []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00\x01\x05\x01\x60\x00\x01\x7f\x03\x02\x01\x00\x07\x05\x01\x01f\x00\x00\x0a\x06\x01\x04\x00\x41"), n, 0x0b)
}

// TestInsist: what is offered is loaded or nothing is: another module's code, or another version's, is not compiled for.
func TestInsist(t *testing.T) {
	s, cache, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close(t.Context())
	compile := func(n byte) (Code, error) { // in a runtime that has seen nothing
		r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigCompiler().WithCompilationCache(cache).WithDebugInfoEnabled(false))
		defer r.Close(t.Context())
		c, err := r.CompileModule(t.Context(), module(n))
		if err == nil {
			defer c.Close(t.Context())
		}
		made, _ := s.Made()
		return made, err
	}
	seven, err := compile(7)
	if err != nil {
		t.Fatal(err)
	}
	s.Insist(seven)
	if made, err := compile(7); err != nil || made.Name != "" {
		t.Errorf("its own: %v; %q was made", err, made.Name)
	}
	older := Code{seven.Name, bytes.Clone(seven.Data)}
	older.Data[8] ^= 1
	for what, c := range map[string]struct {
		n       byte
		offered Code
	}{"another module's": {8, seven}, "another version's": {7, older}, "nothing": {8, Code{}}} {
		s.Insist(c.offered)
		if made, err := compile(c.n); !errors.Is(err, ErrOther) || made.Name != "" {
			t.Errorf("%s: %v; %q was made", what, err, made.Name)
		}
	}
	s.Offer(seven)
	if made, err := compile(8); err != nil || made.Name == "" {
		t.Errorf("offered another module's without that: %v", err)
	}
}

// TestShelf: what one runtime compiled another loads, and runs; other code is not taken for it, and damaged code is refused.
func TestShelf(t *testing.T) {
	compile := func(code []byte, offered Code) (int32, Code, bool, error) {
		t.Helper()
		s, cache, err := New()
		if err != nil {
			t.Fatal(err)
		}
		r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigCompiler().WithCompilationCache(cache).WithDebugInfoEnabled(false))
		defer cache.Close(t.Context())
		defer r.Close(t.Context())
		s.Offer(offered)
		c, err := r.CompileModule(t.Context(), code)
		made, ok := s.Made()
		if err != nil {
			return 0, made, ok, err
		}
		m, err := r.InstantiateModule(t.Context(), c, wazero.NewModuleConfig())
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.ExportedFunction("f").Call(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return api.DecodeI32(got[0]), made, ok, nil
	}
	got, seven, ok, err := compile(module(7), Code{})
	if got != 7 || !ok || err != nil || len(seven.Name) != 64 || len(seven.Data) == 0 {
		t.Fatalf("compiled: %d, %v, %v; %d bytes as %q", got, ok, err, len(seven.Data), seven.Name)
	}
	if got, _, ok, err := compile(module(7), seven); got != 7 || ok || err != nil {
		t.Errorf("loaded: %d, compiled anew %v, %v", got, ok, err)
	}
	if got, made, ok, err := compile(module(8), seven); got != 8 || !ok || err != nil || made.Name == seven.Name {
		t.Errorf("offered another module's: %d, compiled anew %v, %v", got, ok, err)
	}
	damaged := Code{seven.Name, bytes.Clone(seven.Data)}
	damaged.Data[len(damaged.Data)/2] ^= 1
	if _, _, ok, err := compile(module(7), damaged); ok || err == nil {
		t.Errorf("damaged: compiled anew %v, %v", ok, err)
	}
	older := Code{seven.Name, bytes.Clone(seven.Data)}
	older.Data[8] ^= 1 // of the version that wrote it
	if got, _, ok, err := compile(module(7), older); got != 7 || !ok || err != nil {
		t.Errorf("another version's: %d, compiled anew %v, %v", got, ok, err)
	}
}
