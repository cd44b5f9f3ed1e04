package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
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

// display is what was written on a terminal.
type display struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *display) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *display) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

// waitFor waits until something is shown.
func (d *display) waitFor(t *testing.T, what string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(d.String(), what); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it shows %q, and not %q", d, what)
		}
	}
}

// seen is what f writes on a terminal.
func seen(t *testing.T, f func(a *app, shown *display)) string {
	t.Helper()
	screen, other := terminal(t)
	var shown display
	var reader sync.WaitGroup
	reader.Go(func() { io.Copy(&shown, other) }) // ends with an error once the screen is closed
	f(&app{err: screen, out: io.Discard}, &shown)
	screen.Close()
	reader.Wait()
	return shown.String()
}

// TestSpinner: what lasts longer than a second says what it does, and takes it
// off the screen again; what is quicker says nothing.
func TestSpinner(t *testing.T) {
	say := func(since time.Duration) string { return fmt.Sprintf("closure on web: %v", since.Round(time.Second)) }
	long := seen(t, func(a *app, shown *display) {
		b := a.spinner(func(since time.Duration) string {
			if since < time.Second {
				t.Errorf("it shows something after %v", since)
			}
			return say(since)
		})
		shown.waitFor(t, "closure on web: ")
		b.end()
		b.end()
	})
	if _, after, _ := strings.Cut(long, "closure on web: "); !regexp.MustCompile(`^\d+s`).MatchString(after) {
		t.Errorf("it shows %q", long)
	}
	if short := seen(t, func(a *app, _ *display) { a.spinner(say).end() }); short != "" {
		t.Errorf("it shows %q", short)
	}
	for name, a := range map[string]*app{"quiet": {quiet: true}, "json": {json: true}} {
		if got := seen(t, func(on *app, _ *display) {
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
	got := seen(t, func(a *app, _ *display) {
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
