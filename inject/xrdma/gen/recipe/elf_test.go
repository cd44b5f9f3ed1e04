package recipe

import (
	"bytes"
	"debug/elf"
	"testing"
)

// undefined lists the symbols that an object needs from outside.
func undefined(t *testing.T, code []byte) []string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names
}
