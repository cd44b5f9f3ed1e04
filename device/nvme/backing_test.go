package nvme

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func openTest(t *testing.T) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := OpenFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	b.memory = false // also where the test's folder is in memory
	return b
}

// TestFlushFails: the kernel tells of a lost write once. Everybody hears of it who flushes from then on, also who came while that fdatasync went on.
func TestFlushFails(t *testing.T) {
	b := openTest(t)
	began, answer := make(chan struct{}), make(chan error)
	calls := 0
	b.sync = func(int) error {
		if calls++; calls > 1 {
			return nil
		}
		close(began)
		return <-answer
	}
	var group sync.WaitGroup
	flush := func() {
		if err := b.Do(&Request{Op: OpFlush}, true); !errors.Is(err, unix.EIO) {
			t.Errorf("a flush: %v", err)
		}
	}
	group.Go(flush)
	<-began
	group.Go(flush)
	answer <- unix.EIO
	group.Wait()
	flush()
	if err := b.Do(&Request{Op: OpWrite, Size: 512, Pieces: [][]byte{make([]byte, 512)}, Durable: true}, true); !errors.Is(err, unix.EIO) {
		t.Errorf("a write that is to be durable: %v", err)
	}
}

// TestZeroesDurably: Write Zeroes with FUA is durable when it ends.
func TestZeroesDurably(t *testing.T) {
	b := openTest(t)
	synced := 0
	b.sync = func(int) error { synced++; return nil }
	for want, durable := range []bool{false, true} {
		if err := b.Do(&Request{Op: OpWriteZeroes, Size: 4096, Durable: durable}, true); err != nil || synced != want {
			t.Errorf("durable %v: %d fdatasyncs, %v", durable, synced, err)
		}
	}
}
