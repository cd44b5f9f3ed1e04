package nvme

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzCommand: whatever an entry says, what is understood of it is written and read again the same.
func FuzzCommand(f *testing.F) {
	for _, c := range []Command{{Op: OpRead, ID: 7, NS: 1, SGL: true, Data: DataBlock(1<<40, 4096), Block: 9, Blocks: 8}, {Op: OpDataset, NS: 1, Blocks: 256, Free: true},
		{Op: OpWrite, NS: 1, Data: [2]uint64{4096, 8192}, Block: 1 << 40, Blocks: 1 << 16, FUA: true, Fused: 2}} {
		var e [CommandBytes]byte
		c.Encode(&e)
		f.Add(e[:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var e, again [CommandBytes]byte
		copy(e[:], in)
		c := Decode(&e)
		if c.Blocks == 0 || c.Blocks > 1<<16 {
			t.Fatalf("%d blocks", c.Blocks)
		}
		c.Encode(&again)
		if got := Decode(&again); got != c {
			t.Fatalf("%+v is read again as %+v", c, got)
		}
	})
}

// TestCompletion: an entry's one word holds all of it.
func TestCompletion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Completion{Head: rapid.Uint16().Draw(t, "head"), Queue: rapid.Uint16().Draw(t, "queue"), ID: rapid.Uint16().Draw(t, "id"),
			Status: Status(rapid.Uint16Range(0, 0x7ff).Draw(t, "status")), Phase: rapid.Bool().Draw(t, "phase")}
		if got := ParseCompletion(c.Word()); got != c {
			t.Fatalf("%+v is read as %+v", c, got)
		}
	})
	// As the specification lays an entry out: SQ head, SQ identifier, command identifier, phase and status.
	w := Completion{Head: 0x1122, Queue: 0x3344, ID: 0x5566, Status: StatusLBA, Phase: true}.Word()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], w)
	if b != [8]byte{0x22, 0x11, 0x44, 0x33, 0x66, 0x55, 0x01, 0x01} {
		t.Errorf("% x", b)
	}
}

// TestFile: a file on a disk, and one in memory, do what requests say; what may block says so where it is asked not to.
func TestFile(t *testing.T) {
	fd, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for name, path := range map[string]string{"on disk": filepath.Join(t.TempDir(), "disk"), "in memory": fmt.Sprint("/proc/self/fd/", fd)} {
		if err := os.WriteFile(path, make([]byte, 1<<20+100), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path, FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Size() != 1<<20 {
			t.Errorf("%s: %d bytes", name, f.Size())
		}
		if _, err := OpenFile(path, FileOptions{ReadOnly: true}); err == nil {
			t.Errorf("%s: it is lent twice", name)
		}
		do := func(r Request) {
			t.Helper()
			err := f.Do(&r, false)
			if errors.Is(err, ErrWait) {
				err = f.Do(&r, true)
			} else if r.Op == OpWrite && !f.memory {
				t.Errorf("%s: a write may block, and was done", name)
			}
			if err != nil {
				t.Errorf("%s: %#x: %v", name, r.Op, err)
			}
		}
		a, b := []byte("first"), make([]byte, 5000)
		do(Request{Op: OpWrite, Off: 4096, Size: 5005, Pieces: [][]byte{a, b}, Durable: true})
		got := [][]byte{make([]byte, 3), make([]byte, 2)}
		do(Request{Op: OpRead, Off: 4096, Size: 5, Pieces: got})
		if string(got[0])+string(got[1]) != "first" {
			t.Errorf("%s: %q", name, got)
		}
		do(Request{Op: OpFlush})
		for _, op := range []Opcode{OpWriteZeroes, OpDataset} {
			do(Request{Op: OpWrite, Off: 4096, Size: 5, Pieces: [][]byte{a}})
			do(Request{Op: op, Off: 0, Size: 8192})
			one := make([]byte, 5)
			if do(Request{Op: OpRead, Off: 4096, Size: 5, Pieces: [][]byte{one}}); string(one) != "\x00\x00\x00\x00\x00" {
				t.Errorf("%s: %#x leaves %q", name, op, one)
			}
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Do(&Request{Op: OpRead, Size: 5, Pieces: [][]byte{make([]byte, 5)}}, true); err == nil {
			t.Errorf("%s: a truncated file is read", name)
		}
		f.Close()
	}
	for _, path := range []string{t.TempDir(), "/dev/null", filepath.Join(t.TempDir(), "none")} {
		if _, err := OpenFile(path, FileOptions{ReadOnly: true}); err == nil {
			t.Errorf("%s is lent", path)
		}
	}
}
