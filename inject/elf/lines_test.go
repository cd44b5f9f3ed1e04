package elf

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// lined is an object with line tables; its function is from line 2 on.
func lined(t *testing.T, flags ...string) []byte {
	t.Helper()
	clang, err := exec.LookPath("clang")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "lined.c")
	if err := os.WriteFile(source, []byte("extern int wherry_self(void);\nint wherry_main(void) {\n\treturn wherry_self() / 3;\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(dir, "lined.o")
	args := append([]string{"--target=x86_64-unknown-linux-gnu", "-O1", "-fPIC", "-fcf-protection=none", "-c", source, "-o", made}, flags...)
	if out, err := exec.Command(clang, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func placeLined(t *testing.T, b []byte) (*Object, *Image, error) {
	t.Helper()
	o, err := Parse(b, Rules{Arch: "x86_64", Entry: "wherry_main", Imports: []string{"wherry_self"}})
	if err != nil {
		return nil, nil, err
	}
	img, err := o.Place(1<<36, func(string) (uint64, bool) { return 1<<36 + 1<<20, true })
	return o, img, err
}

// TestLine: an address has the line that it was compiled from, by tables of either version; without tables it has none.
func TestLine(t *testing.T) {
	for _, flags := range [][]string{{"-gline-tables-only"}, {"-g"}, {"-gline-tables-only", "-gdwarf-4"}} {
		o, img, err := placeLined(t, lined(t, flags...))
		if err != nil {
			t.Fatal(err)
		}
		if file, line, ok := o.Line(img, img.Entry); file != "lined.c" || line != 2 || !ok {
			t.Errorf("%v: the function begins at %s:%d, %v", flags, file, line, ok)
		}
		for _, addr := range []uint64{img.Base - 1, img.Base + img.Size, 0, 1<<64 - 1} {
			if file, line, ok := o.Line(img, addr); ok {
				t.Errorf("%v: %#x lies at %s:%d", flags, addr, file, line)
			}
		}
	}
	for _, flags := range [][]string{nil, {"-gline-tables-only", "-DX", "-ffunction-sections", "-include", "/dev/null"}} {
		o, img, err := placeLined(t, lined(t, flags...))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := o.Line(img, img.Entry); ok != (flags != nil) {
			t.Errorf("%v: a line: %v", flags, ok)
		}
	}
}

// TestDamagedLines: whatever stands in the tables, asking for a line ends, without a panic; and the name that comes of it can be printed.
func TestDamagedLines(t *testing.T) {
	good := lined(t, "-g")
	for i := 0; i < len(good); i += 3 {
		for _, bits := range []byte{0xff, 0x80, 0x01} {
			bad := bytes.Clone(good)
			bad[i] ^= bits
			if o, img, err := placeLined(t, bad); err == nil {
				o.Line(img, img.Entry)
			}
		}
		if bad := bytes.Clone(good); i+4 <= len(bad) {
			binary.LittleEndian.PutUint32(bad[i:], 0xfffffff0)
			if o, img, err := placeLined(t, bad); err == nil {
				o.Line(img, img.Entry)
			}
		}
	}
	if got := shown("../x/\x1b[31mred\n.c"); got != "[31mred.c" {
		t.Errorf("%q", got)
	}
}
