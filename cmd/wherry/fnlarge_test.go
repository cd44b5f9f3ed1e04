package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// windowMiB is the size of the window of TestLargeWindow. A wasm function sees less than 4 GiB at once; make soak tries more.
var windowMiB = flag.Int64("window-mib", 24, "the size of the window that fn test is tried on, in MiB")

// largeSource adds up a window's numbers, and counts the parts that it sees it in.
const largeSource = `#include "wherry.h"
struct answer { uint64_t sum, rows, parts; };
WHERRY_ENTRY(payload, size)
{
    struct answer a = {0};
    wherry_view_t view = {0};
    uint64_t first = 0;
    const uint64_t *row;
    for (uint64_t i = 0; (row = wherry_at(0, &view, i * sizeof *row, sizeof *row)); i++) {
        a.parts += !a.rows || view.first != first;
        first = view.first;
        a.sum += *row;
        a.rows++;
    }
    (void)payload;
    (void)size;
    return wherry_reply(&a, sizeof a);
}
`

const largeManifest = `{"name": "large", "start": "every", "result": {"fields": [{"name": "sum", "type": "u64"}, {"name": "rows", "type": "u64"}, {"name": "parts", "type": "u64"}]},
"result_form": "record", "rows": {"fields": [{"name": "n", "type": "u64"}]}, "windows": [{"name": "numbers"}], "limits": {"run_time_ns": 60000000000}}`

// TestLargeWindow: fn test runs a function in every form on a window of any size. As wasm it sees one that has no room in its memory in parts of 256 MiB.
func TestLargeWindow(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"large.c": largeSource, "large.json": largeManifest} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	size := *windowMiB << 20
	sum := sparse(t, filepath.Join(dir, "numbers.raw"), size)
	forms := []string{"wasm"}
	if runtime.GOARCH == "amd64" { // where workers have run
		crossBuild(t, "../wherry-llvm", runtime.GOARCH, filepath.Join(dir, "wherry-llvm"))
		forms = append(forms, "bitcode", "elf")
	}
	for _, form := range forms {
		parts := int64(1)
		if form == "wasm" && size >= 4<<30 {
			parts = (size + 256<<20 - 1) / (256 << 20)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "fn", "test", "large.c", "--data", "numbers.raw", "--elements", "1", "--memory", fmt.Sprint(size+64<<20),
			"--form", form, "--format", "csv", "--quiet", "--timeout", "20m")
		var said strings.Builder
		cmd.Dir, cmd.Stderr = dir, &said
		cmd.Env = append(os.Environ(), "WHERRY_TEST_RUN=1", "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if want := fmt.Sprintf("sum,rows,parts\n%d,%d,%d\n", sum, size/8, parts); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v, want %q\n%s", form, out, err, want, &said)
		}
	}
}

// sparse makes a file of numbers, most of them 0, and returns their sum. Some lie to both sides of where parts end.
func sparse(t *testing.T, file string, size int64) (sum uint64) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for part := int64(8 << 20); part <= size; part += 8 << 20 {
		for _, at := range []int64{part - 8, part} {
			if n := uint64(at/8 + 1); at < size {
				if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, n), at); err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
