package flock

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLock: a lock is waited for, and not for ever.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	var open [2]*os.File
	for i := range open {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		open[i] = f
	}
	if err := Lock(open[0], 0); err != nil {
		t.Fatal(err)
	}
	if err := Lock(open[1], 30*time.Millisecond); !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), dir) {
		t.Errorf("it is held: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { open[0].Close() })
	if err := Lock(open[1], time.Minute); err != nil {
		t.Errorf("it is given back: %v", err)
	}
}
