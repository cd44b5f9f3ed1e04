package faulttest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

// guests are the compiled functions of guest, by name; value is there for
// several values, as "value1" and so on.
var guests = map[string][]byte{}

func TestMain(m *testing.M) {
	flag.Parse()
	if args := flag.Args(); len(args) == 2 && args[0] == childMark {
		os.Exit(childMain(args[1]))
	}
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := compileGuests(); err != nil {
		fmt.Fprintf(os.Stderr, "the functions under guest must be compiled first: %v\n", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(tidy{m})
}

// tidy runs the tests with a folder of their own for temporary files, and fails if
// they leave any: elements that are killed cannot remove theirs.
type tidy struct{ tests *testing.M }

func (r tidy) Run() int {
	code, err := r.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "temporary files:", err)
		return 1
	}
	return code
}

func (r tidy) run() (code int, err error) {
	dir, err := os.MkdirTemp("", "wherry-fault-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return 0, err
	}
	code = r.tests.Run()
	left, err := os.ReadDir(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the tests leave %d behind, as %s", len(left), left[0].Name())
	}
	return code, err
}

func compileGuests() error {
	tools, err := cbuild.FindTools()
	if err != nil {
		return err
	}
	type job struct{ name, file, value string }
	jobs := []job{{"faults", "faults.c", ""}, {"journey", "journey.c", ""}, {"memory", "memory.c", ""}, {"hoard", "hoard.c", ""}, {"copier", "copier.c", ""},
		{"value1", "value.c", "1"}, {"value2", "value.c", "2"}}
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, j := range jobs {
		wait.Add(1)
		go func() {
			defer wait.Done()
			opts := cbuild.Options{Tools: tools}
			if j.value != "" {
				opts.Defines = map[string]string{"VALUE": j.value}
			}
			source, err := os.ReadFile(filepath.Join("guest", j.file))
			var code []byte
			if err == nil {
				code, err = cbuild.Compile(context.Background(), cbuild.Source{Name: j.file, Code: source}, opts)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s: %w", j.file, err)
			}
			guests[j.name] = code
		}()
	}
	wait.Wait()
	return failed
}

// guestImage packs a guest; change alters the manifest before that.
func guestImage(t testing.TB, guest string, change func(*image.Manifest)) *image.Image {
	t.Helper()
	m := image.Manifest{Name: strings.TrimRight(guest, "0123456789"), Limits: abi.Limits{HeapBytes: 1 << 20, ScratchBytes: 64 << 10, PayloadBytes: 64 << 10}}
	if guest == "faults" || guest == "journey" || strings.HasPrefix(guest, "value") {
		m.Limits.ScratchBytes = 0 // not stateful
	}
	if change != nil {
		change(&m)
	}
	img, err := image.Build(m, image.Entry{Form: image.Wasm, Code: guests[guest]})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// withLimits is a change of guestImage.
func withLimits(set func(*abi.Limits)) func(*image.Manifest) {
	return func(m *image.Manifest) { set(&m.Limits) }
}

const (
	// patience bounds every wait that a bug could make endless.
	patience = 40 * time.Second
	// atOnce is how long what happens at once may take: these tests share a machine with others, and loop for ever
	// beside each other. What would end it otherwise takes longer: 15 s until a silent peer is lost, a run's minute.
	atOnce = 12 * time.Second
)

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until f says "", and fails with what it says otherwise.
func eventually(t testing.TB, what string, f func() string) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		s := f()
		if s == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s", what, s)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
