package hugetext

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/types"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"runtime/pprof"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// childMark in the environment makes the test binary move its text.
const childMark = "HUGETEXT_TEST_CHILD"

// bulk is code enough for a huge page: whatever can be called by way of reflection is linked.
var bulk = []any{http.DefaultServeMux, http.DefaultClient, types.Universe, &http.Server{}}

func TestMain(m *testing.M) {
	if os.Getenv(childMark) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestMove moves a process's code while it runs, collects garbage and is profiled.
func TestMove(t *testing.T) {
	if err := Check(); err != nil {
		t.Skipf("this machine has no huge pages to give: %v", err)
	}
	var out []byte
	var err error
	for range 3 { // a machine whose memory is in small pieces may have no huge pages left for once
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childMark+"=1")
		if out, err = cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no huge pages") {
			break
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func child() error {
	for _, v := range bulk {
		_ = reflect.ValueOf(v).MethodByName("Nobody" + fmt.Sprint(len(os.Args)))
	}
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		return err
	}
	var stop atomic.Bool
	var turns atomic.Int64
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for !stop.Load() {
				words := strings.Fields(strings.Repeat("c b a ", 100))
				sort.Strings(words)
				turns.Add(1)
			}
		})
	}
	size, err := Move()
	if err != nil {
		return err
	}
	for seen := turns.Load(); turns.Load() < seen+1000; {
		runtime.GC()
	}
	stop.Store(true)
	busy.Wait()
	pprof.StopCPUProfile()
	if again, err := Move(); err != nil || again != size {
		return fmt.Errorf("a second Move says %d, %v; the first %d", again, err, size)
	}
	func() {
		defer func() { err = fmt.Errorf("%v", recover()) }()
		panic("unwound")
	}()
	if err.Error() != "unwound" {
		return err
	}
	return onHugePages(size)
}

// onHugePages checks that the code is executable, not writable, and all on huge pages.
func onHugePages(size int) error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for inside := false; lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			inside = fields[1] == "r-xp" && fields[4] == "0"
		case inside && fields[0] == "AnonHugePages:":
			if fields[1] != fmt.Sprint(size>>10) {
				return fmt.Errorf("%s kB on huge pages of %d", fields[1], size>>10)
			}
			return nil
		}
	}
	return errors.New("no anonymous code in /proc/self/smaps")
}

func TestFind(t *testing.T) {
	const maps = `00400000-00e00000 r-xp 00000000 fd:00 1234 /usr/bin/wherry
00e00000-01000000 r-xp 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`
	for addr, want := range map[uintptr]mapping{
		0x400000: {0x400000, 0xa00000, true},
		0xdfffff: {0x400000, 0xa00000, true},
		0xe00000: {0xe00000, 0x200000, false},
	} {
		if got, err := find([]byte(maps), addr); err != nil || got != want {
			t.Errorf("%#x: %+v, %v", addr, got, err)
		}
	}
	if _, err := find([]byte(maps), 0x1000000); err == nil || !strings.Contains(err.Error(), "no mapping of 0x1000000") {
		t.Errorf("an address of no mapping: %v", err)
	}
	if _, err := find([]byte("nonsense\n"), 0x400000); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("a line that is none: %v", err)
	}
}
