package libllvm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// TestConstants: where constants are known the code is what it would be had they been written into the source; where they are not, or the function
// does not ask for as many as there are, nothing is lost.
func TestConstants(t *testing.T) {
	l := library(t, "")
	body := `
    struct { uint64_t least; uint64_t op; } k;
    int32_t st = wherry_constants(&k, sizeof k);
    if (st)
        return st;
    const uint64_t *at = payload;
    uint64_t n = 0;
    for (uint32_t i = 0; i < size / 8; i++)
        n += k.op == 1 ? at[i] >= k.least : k.op == 2 ? at[i] * at[i] % 97 == k.least : at[i] / k.least % 3 == 1;
    return wherry_reply(&n, sizeof n);`
	written := strings.Replace(body, "wherry_constants(&k, sizeof k)", "0; k.least = 500; k.op = 1", 1)
	constants := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 500), 1)
	imports := []string{"wherry_reply", "wherry_constants"}
	for _, target := range targets {
		made := func(source string, constants []byte, fast bool) []byte {
			target.Constants, target.Fast = constants, fast
			object, err := l.Compile(bitcode(t, entry(source), target.Triple), target, imports)
			if err != nil {
				t.Fatal(err)
			}
			return object
		}
		for _, fast := range []bool{false, true} {
			for _, with := range [][]byte{nil, constants} {
				if open, _ := names(t, made(body, with, fast)); slices.Contains(open, "wherry_constants") != (with == nil) {
					t.Errorf("%s: with %d bytes of constants it calls %v", target.Triple, len(with), open)
				}
			}
		}
		got, want := text(t, made(body, constants, false)), text(t, made(written, nil, false))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: with constants its code has %d bytes, %d where they are in the source", target.Triple, len(got), len(want))
		}
	}
	target := targets[0]
	target.Constants = constants
	if _, err := l.Compile(bitcode(t, entry("char c[3]; return wherry_constants(c, 3);"), host), target, imports); err != nil {
		t.Error(err)
	}
}

// text is an object's code.
func text(t *testing.T, object []byte) []byte {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".text") && s.Size > 0 {
			code, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			return code
		}
	}
	t.Fatal("it has no code")
	return nil
}
