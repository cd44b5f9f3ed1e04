package excache

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uffd"
	"github.com/wherry-fabric/wherry/pool/excache/shim"
)

func launch(t *testing.T, local int64, in []byte, args ...string) (Outcome, string, string) {
	t.Helper()
	if err := uffd.Probe(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	store := &testStore{most: 24, mapped: true}
	var out, errs bytes.Buffer
	o, err := Run(Config{LocalBytes: local, Store: store, Told: func(err error) { t.Error(err) }},
		Program{Args: args, Env: os.Environ(), In: bytes.NewReader(in), Out: &out, Err: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if len(store.rooms) != 0 {
		t.Errorf("%d rooms were not given back", len(store.rooms))
	}
	return o, out.String(), errs.String()
}

// TestSort: the system's sort, with most of its memory remote, writes the same bytes as without.
func TestSort(t *testing.T) {
	var lines bytes.Buffer
	for i := range uint64(400_000) {
		x := (i*6364136223846793005 + 1) * 0x9e3779b97f4a7c15
		lines.WriteString(strings.Repeat(string(rune('a'+x>>59)), int(x>>40%13)))
		lines.WriteByte(byte('0' + x%10))
		lines.WriteByte('\n')
	}
	plain := exec.Command("sort", "-S", "64M")
	plain.Stdin, plain.Env = bytes.NewReader(lines.Bytes()), append(os.Environ(), "LC_ALL=C")
	want, err := plain.Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LC_ALL", "C")
	o, got, errs := launch(t, 4<<20, lines.Bytes(), "sort", "-S", "64M")
	if o.Code != 0 || got != string(want) || errs != "" {
		t.Errorf("exit code %d, %d bytes, equal: %v; %s", o.Code, len(got), got == string(want), errs)
	}
	if o.Stats.Saved == 0 || o.Stats.Fetched == 0 {
		t.Errorf("nothing was remote: %+v", o.Stats)
	}
}

// TestExitCodes: the program's exit code is told, also where a signal ended it, and its words come through.
func TestExitCodes(t *testing.T) {
	for script, want := range map[string]int{"echo out; echo err >&2; exit 7": 7, "kill -TERM $$": 143, "exec true": 0} {
		o, out, errs := launch(t, 1<<20, nil, "sh", "-c", script)
		if o.Code != want || o.Stats.Processes == 0 {
			t.Errorf("%s: exit code %d, want %d; %+v", script, o.Code, want, o.Stats)
		}
		if want == 7 && (out != "out\n" || errs != "err\n") {
			t.Errorf("%q, %q", out, errs)
		}
	}
}

// TestSignals: signals that are for the program reach it.
func TestSignals(t *testing.T) {
	signals := make(chan os.Signal, 1)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		b := make([]byte, 6)
		r.Read(b)
		signals <- syscall.SIGTERM
	}()
	o, err := Run(Config{LocalBytes: 1 << 20, Store: &testStore{most: 4}}, Program{Env: os.Environ(), Out: w, Signals: signals,
		Args: []string{"sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"}})
	w.Close()
	if err != nil || o.Code != 9 {
		t.Errorf("exit code %d, %v", o.Code, err)
	}
}

// TestLeftBehind: a process that the program leaves in the background ends with the cache, and is counted.
func TestLeftBehind(t *testing.T) {
	start := time.Now()
	o, _, _ := launch(t, 1<<20, nil, "sh", "-c", "sleep 100 >/dev/null 2>&1 & sleep 0.3")
	if o.Code != 0 || o.Left != 1 || time.Since(start) > 50*time.Second {
		t.Errorf("%+v after %v", o, time.Since(start))
	}
}

// TestRefused: what no library can be preloaded into is refused before it starts, with what to do.
func TestRefused(t *testing.T) {
	static, setuid := filepath.Join(t.TempDir(), "static"), filepath.Join(t.TempDir(), "setuid")
	if err := os.WriteFile(static, shim.Library(), 0o755); err != nil { // it names no loader either
		t.Fatal(err)
	}
	sh, err := os.ReadFile("/bin/sh")
	if err == nil {
		err = os.WriteFile(setuid, sh, 0o700)
	}
	if err == nil {
		err = os.Chmod(setuid, 0o700|os.ModeSetuid)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	script := filepath.Join(t.TempDir(), "script")
	os.WriteFile(text, []byte("hello"), 0o755)
	os.WriteFile(script, []byte("#! "+static+" -x\n"), 0o755)
	for path, want := range map[string]string{static: "statically", setuid: "set-user-id", text: "-- sh " + text, script: "statically"} {
		_, err := Run(Config{LocalBytes: 1 << 20, Store: &testStore{}}, Program{Args: []string{path}})
		if !errors.Is(err, ErrProgram) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := Run(Config{LocalBytes: 1 << 20, Store: &testStore{}}, Program{Args: []string{"no-such-program"}}); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
	if _, err := Run(Config{LocalBytes: 1, Store: &testStore{}}, Program{Args: []string{"true"}}); err == nil {
		t.Error("a cache of one byte")
	}
}

// refuseProgram is testdata/refuse.c.
func refuseProgram(t *testing.T) string {
	t.Helper()
	refuse := filepath.Join(t.TempDir(), "refuse")
	if out, err := exec.Command("gcc", "-O1", "-o", refuse, "testdata/refuse.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return refuse
}

// TestFiltered: what a filter of system calls keeps from the daemon runs without remote memory, and says so; a program that sets the filter itself cannot fork, and
// hears why. It used to end, as if the daemon were gone.
func TestFiltered(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	out, err := r.ends(refuseProgram(t), "socket", "/bin/echo", "hello")
	lines := strings.Split(out, "\n")
	if err != nil || len(lines) != 4 || !strings.Contains(lines[0], "fork fails") || !strings.Contains(lines[0], "(ENOSYS)") ||
		!strings.Contains(lines[1], "without remote memory") || !strings.Contains(lines[1], "seccomp") || lines[2] != "hello" {
		t.Errorf("%v, %s", err, out)
	}
}

// TestNoUserfaultfd: where the kernel gives this process no userfaultfd, neither by the system call nor by the device, a program is refused before it starts, with
// what to do. The test runs itself with a filter of the kernel's that refuses both.
func TestNoUserfaultfd(t *testing.T) {
	const filtered = "WHERRY_TEST_FILTERED"
	if os.Getenv(filtered) != "" {
		_, err := Run(Config{LocalBytes: 1 << 20, Store: &testStore{}}, Program{Args: []string{"true"}})
		if !errors.Is(err, ErrProgram) || !errors.Is(err, uffd.ErrUnsupported) || !strings.Contains(err.Error(), "vm.unprivileged_userfaultfd=1") {
			t.Error(err)
		}
		return
	}
	refuse := refuseProgram(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(refuse, "userfaultfd", self, "-test.run=^TestNoUserfaultfd$", "-test.v")
	cmd.Env = append(os.Environ(), filtered+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestNoUserfaultfd") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLimits: where this process's limits are too low for the library or the window, a program is refused before it starts, with what to do.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		what int
		cur  uint64
		want string
	}{
		"open files": {unix.RLIMIT_NOFILE, 150, "ulimit -n"},
		"addresses":  {unix.RLIMIT_AS, 128 << 30, "ulimit -v unlimited"},
		"files":      {unix.RLIMIT_FSIZE, 1 << 30, "ulimit -f unlimited"},
	} {
		t.Run(name, func(t *testing.T) {
			var had unix.Rlimit
			if err := unix.Getrlimit(c.what, &had); err != nil {
				t.Fatal(err)
			}
			if err := unix.Setrlimit(c.what, &unix.Rlimit{Cur: c.cur, Max: had.Max}); err != nil {
				t.Fatal(err)
			}
			o, err := Run(Config{LocalBytes: 1 << 20, Store: &testStore{}}, Program{Args: []string{"true"}, Env: os.Environ()})
			unix.Setrlimit(c.what, &had)
			if !errors.Is(err, ErrProgram) || errors.Is(err, uffd.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%+v, %v; want %q", o, err, c.want)
			}
		})
	}
}

// TestNoAddresses: a program that limits its addresses itself, before it starts another, hears that this is why that one has no remote memory.
func TestNoAddresses(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	out, err := r.ends("/bin/sh", "-c", "ulimit -v 8000000; exec /bin/true")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 125 || out != "wherry run: this process cannot have remote memory\n" {
		t.Errorf("%v, %q", err, out)
	}
	if err := r.told(t); !errors.Is(err, ErrProgram) || errors.Is(err, uffd.ErrUnsupported) || !strings.Contains(err.Error(), "ulimit -v unlimited") {
		t.Errorf("told %v", err)
	}
}

// TestToldInTime: why the program itself cannot be served is told, though it has ended by then.
func TestToldInTime(t *testing.T) {
	const rounds = 5
	for range rounds {
		var told []string
		var errs bytes.Buffer
		o, err := Run(Config{LocalBytes: 1 << 20, Store: &testStore{most: 4, mapped: true}, Told: func(err error) { told = append(told, err.Error()) }},
			Program{Args: []string{"sh", "-c", "ulimit -v 8000000; exec true"}, Env: os.Environ(), Err: &errs})
		if err != nil || o.Code != 125 || o.Left != 0 || len(told) != 1 || !strings.Contains(told[0], "ulimit -v unlimited") {
			t.Errorf("%+v, %v, %q, %s", o, err, told, errs.Bytes())
		}
	}
}

// TestOtherNamespace: processes of another pid namespace, whose numbers mean nothing here, are not counted as left behind when they have ended.
func TestOtherNamespace(t *testing.T) {
	if out, err := exec.Command("unshare", "-pf", "true").CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	program := locksProgram(t)
	for range 5 {
		if o, _, errs := launch(t, 4<<20, nil, "unshare", "-pf", program, "stray"); o.Code != 0 || o.Left != 0 || errs != "" {
			t.Errorf("%+v, %s", o, errs)
		}
	}
}

// TestNothingLeft: processes that ended just before the program are not counted as left behind, though the cache has not heard of it yet.
func TestNothingLeft(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dying, living := &session{pid: ended.Process.Pid, follow: true}, &session{pid: os.Getpid(), follow: true}
	c := &Cache{sessions: map[*session]struct{}{dying: {}, living: {}}}
	go func() {
		time.Sleep(10 * time.Millisecond)
		c.mu.Lock()
		delete(c.sessions, dying)
		c.mu.Unlock()
	}()
	if n := (&listener{cache: c}).settle(); n != 1 {
		t.Errorf("%d were left, want the one that lives", n)
	}
}

// TestHeap: the other malloc is found where it is installed, for this processor; where it is not, what to install is said.
func TestHeap(t *testing.T) {
	path, err := Heap()
	if err != nil || filepath.Base(path) != heapLibrary {
		t.Fatalf("%q, %v: scripts/test-tools.sh installs it", path, err)
	}
	other := t.TempDir()
	for _, name := range []string{"shim.x86_64.so", "shim.aarch64.so"} { // one of them is not this processor's
		b, err := os.ReadFile(filepath.Join("shim", name))
		if err != nil || os.WriteFile(filepath.Join(other, name), b, 0o600) != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for _, name := range []string{"shim.x86_64.so", "shim.aarch64.so", "libnothing.so.1"} {
		path, err := findLibrary(name, []string{other})
		if err == nil && path == filepath.Join(other, name) {
			found++
		} else if err == nil || !strings.Contains(err.Error(), name+" is not installed") {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	if found != 1 {
		t.Errorf("%d libraries are this processor's", found)
	}
	for _, e := range environment([]string{"LD_PRELOAD=x.so"}, "s", []string{path}) {
		if strings.HasPrefix(e, "LD_PRELOAD=") && !strings.HasSuffix(e, ":"+path+":x.so") {
			t.Error(e)
		}
	}
}
