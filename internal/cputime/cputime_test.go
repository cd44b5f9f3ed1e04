package cputime

import (
	"runtime"
	"testing"
	"time"
)

// TestSleepIsFree: a thread that sleeps uses no processor time, one that computes does.
func TestSleepIsFree(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems tell the time that passes")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := Thread()
	time.Sleep(300 * time.Millisecond)
	if used := Thread() - before; used > 150*time.Millisecond {
		t.Errorf("a sleep of 300 ms took %v of processor time", used)
	}
	before = Thread()
	for start := time.Now(); Thread()-before < 10*time.Millisecond; {
		if time.Since(start) > time.Minute {
			t.Fatal("a minute of computing took no processor time")
		}
	}
}

func BenchmarkThread(b *testing.B) {
	for b.Loop() {
		Thread()
	}
}

func BenchmarkLockedThread(b *testing.B) {
	for b.Loop() {
		runtime.LockOSThread()
		Thread()
		runtime.UnlockOSThread()
	}
}
