package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: what is written to screen can be read from the other side.
func terminal(t *testing.T) (screen, other *os.File) {
	t.Helper()
	other, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	if err := unix.IoctlSetPointerInt(int(other.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(int(other.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, other
}

// seen is what f writes on a terminal.
func seen(t *testing.T, f func(a *app)) string {
	t.Helper()
	screen, other := terminal(t)
	var text bytes.Buffer
	var reader sync.WaitGroup
	reader.Go(func() { io.Copy(&text, other) }) // ends with an error once the screen is closed
	f(&app{err: screen, out: io.Discard})
	screen.Close()
	reader.Wait()
	return text.String()
}

// TestSpinner: what lasts longer than a second says what it does, and takes it
// off the screen again; what is quicker says nothing.
func TestSpinner(t *testing.T) {
	say := func(since time.Duration) string { return fmt.Sprintf("closure on web: %v", since.Round(time.Second)) }
	long := seen(t, func(a *app) {
		b := a.spinner(say)
		time.Sleep(barAfter + 3*spinEvery)
		b.end()
		b.end()
	})
	if !strings.Contains(long, "closure on web: 1s") {
		t.Errorf("it shows %q", long)
	}
	if short := seen(t, func(a *app) { a.spinner(say).end() }); short != "" {
		t.Errorf("it shows %q", short)
	}
	for name, a := range map[string]*app{"quiet": {quiet: true}, "json": {json: true}} {
		if got := seen(t, func(on *app) {
			a.err = on.err
			b := a.spinner(say)
			time.Sleep(barAfter + 2*spinEvery)
			b.end()
		}); got != "" {
			t.Errorf("%s shows %q", name, got)
		}
	}
}

// TestBar: a bar that is moved shows how far it is.
func TestBar(t *testing.T) {
	got := seen(t, func(a *app) {
		b := a.bar(false)
		b.started = b.started.Add(-barAfter)
		b.at("rows", 20, 100)
		time.Sleep(2 * drawEvery) // it is drawn no more often than that
		b.at("rows", 20, 100)
		b.end()
	})
	if !strings.Contains(got, "rows") || !strings.Contains(got, "20%") {
		t.Errorf("it shows %q", got)
	}
}
