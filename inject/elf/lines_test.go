package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// lined is an object with line tables; its function is from line 2 on.
func lined(t *testing.T, flags ...string) []byte {
	t.Helper()
	return linedFor(t, "x86_64", append([]string{"-fcf-protection=none"}, flags...)...)
}

func linedFor(t *testing.T, arch string, flags ...string) []byte {
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
	args := append([]string{"--target=" + arch + "-unknown-linux-gnu", "-O1", "-fPIC", "-c", source, "-o", made}, flags...)
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
	return placeLinedFor(t, "x86_64", b)
}

func placeLinedFor(t *testing.T, arch string, b []byte) (*Object, *Image, error) {
	t.Helper()
	o, err := Parse(b, Rules{Arch: arch, Entry: "wherry_main", Imports: []string{"wherry_self"}})
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

// TestLineOfEachProcessor: so it is on every processor.
func TestLineOfEachProcessor(t *testing.T) {
	for arch, flags := range map[string][]string{"x86_64": {"-fcf-protection=none"}, "aarch64": nil, "riscv64": {"-march=rv64gc", "-mabi=lp64d", "-mno-relax"}} {
		for _, version := range []string{"-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"} {
			o, img, err := placeLinedFor(t, arch, linedFor(t, arch, append([]string{version, "-gline-tables-only"}, flags...)...))
			if err != nil {
				t.Fatal(arch, err)
			}
			lines := map[int]bool{}
			for addr := img.Entry; addr < img.Entry+0x60; addr++ {
				file, line, ok := o.Line(img, addr)
				if !ok {
					continue // the compiler's own, or the function has ended
				}
				if file != "lined.c" {
					t.Errorf("%s %s: %#x lies in %q", arch, version, addr, file)
				}
				lines[line] = true
			}
			if len(lines) != 2 || !lines[2] || !lines[3] {
				t.Errorf("%s %s: the function has the lines %v, want 2 and 3", arch, version, lines)
			}
		}
	}
}

// TestGreedyLines: tables that say they have more than they have, or join what they have with itself, take no memory for it.
func TestGreedyLines(t *testing.T) {
	object := lined(t, "-gline-tables-only", "-gdwarf-5")
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	at := f.Section(".debug_line").Offset
	// Behind the numbers of operands: the form of folders, and how many there are.
	const folders = 4 + 2 + 2 + 4 + 6 + 12
	if head := object[at+folders:]; !bytes.HasPrefix(head, []byte{1, 1, 0x1f}) {
		t.Fatalf("clang's head is another: % x", head[:8])
	}
	greedy := bytes.Clone(object)
	copy(greedy[at+folders:], "\x00\xff\xff\x7f") // 2^21 folders that have no parts; with more bytes it would be 2^60
	o, img, err := placeLined(t, greedy)
	if err != nil {
		t.Fatal(err)
	}
	if took := allocated(func() { o.Line(img, img.Entry) }); took > maxLineBytes {
		t.Errorf("looking for a line in %d bytes took %d of memory", len(greedy), took)
	}

	// Version 4: one folder with a name of half the table, and files of which each lies there.
	var head []byte
	head = append(head, 1, 1, 1, 0, 1, 1) // … and no instruction but the short ones and the first
	head = append(append(head, bytes.Repeat([]byte{'d'}, maxLineBytes/2)...), 0, 0)
	for len(head) < maxLineBytes-64 {
		head = append(head, 'f', 0, 1, 0, 0)
	}
	head = append(head, 0)
	unit := binary.LittleEndian.AppendUint32([]byte{4, 0}, uint32(len(head)))
	unit = append(append(unit, head...), 1+1, 1+1)
	joined := lineTables{lines: append(binary.LittleEndian.AppendUint32(nil, uint32(len(unit))), unit...)}
	took := allocated(func() {
		if file, line, ok := joined.find(1); file != "f" || line != 1 || !ok {
			t.Errorf("%s:%d, %v", file, line, ok)
		}
	})
	if took > maxLineBytes {
		t.Errorf("looking for a line in %d bytes took %d of memory", len(joined.lines), took)
	}
}

// allocated is how much memory a call asks for in all.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
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
