package excache

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// edgesProgram is testdata/edges.c.
func edgesProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "edges")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-Wall", "-o", program, "testdata/edges.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestClosing: what a program starts has remote memory too, where all descriptors that the program does not know are closed before, as Python's subprocess does.
func TestClosing(t *testing.T) {
	if o, out, errs := launch(t, 4<<20, nil, edgesProgram(t), "closing"); o.Code != 0 || out != "ok\n" || errs != "" {
		t.Errorf("exit code %d, %s, %s", o.Code, out, errs)
	}
}

// TestSystemsWay: what the system would do with memory happens to remote memory, or is refused.
func TestSystemsWay(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	program := edgesProgram(t)
	for _, what := range []string{"advice", "numbers", "low", "keys", "handlers"} {
		t.Run(what, func(t *testing.T) {
			if got := r.run(t, program, what); got != "ok" {
				t.Errorf("%s", got)
			}
		})
	}
}

// TestForkRefused: where the daemon cannot be told of a fork, because the program has changed its user or its root folder or has no descriptor free, fork fails and the
// program goes on. The reason is said once for each, and refused forks are counted.
func TestForkRefused(t *testing.T) {
	program := edgesProgram(t)
	for what, want := range map[string]string{"crowded": "too many open files (EMFILE)", "user": "permission denied (EACCES)", "root": "no such file (ENOENT)"} {
		t.Run(what, func(t *testing.T) {
			if what != "crowded" && os.Geteuid() != 0 {
				t.Skip("only root can change its user or its root folder")
			}
			r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
			got := r.run(t, program, what)
			lines := strings.Split(got, "\n")
			if len(lines) != 2 || lines[1] != "ok" || !strings.HasPrefix(lines[0], "wherry run: fork fails with ENOMEM: ") || !strings.Contains(lines[0], r.socket+": "+want) {
				t.Errorf("%s", got)
			}
			r.awaitSessions(t, 0)
			s := r.Stats()
			if crowded := s.Forks == 12 && s.ForksRefused >= 3 && s.ForksRefused < 9; what == "crowded" && !crowded || what != "crowded" && (s.Forks != 2 || s.ForksRefused != 2) {
				t.Errorf("%d forks, %d of them refused", s.Forks, s.ForksRefused)
			}
		})
	}
}

// TestForkRefusedByStore: where the store has no room for a copy, or cannot make it, fork fails. The reason is told once for each, and what to do.
func TestForkRefusedByStore(t *testing.T) {
	program := edgesProgram(t)
	for what, c := range map[string]struct {
		most int
		err  error
		want string
	}{
		"full":   {1, nil, "--pool-memory"},
		"broken": {10, errBroken, "try again"},
		"late":   {10, context.Canceled, "did not answer within 4s"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, &testStore{most: c.most, mapped: true, cloneErr: c.err}, 2<<20)
			out, err := r.ends(program, "refused")
			if err != nil || out != "ok\n" {
				t.Errorf("%v, %s", err, out)
			}
			r.awaitSessions(t, 0)
			if s := r.Stats(); s.Forks != 2 || s.ForksRefused != 2 {
				t.Errorf("%d forks, %d of them refused", s.Forks, s.ForksRefused)
			}
			err = r.told(t)
			if !errors.Is(err, ErrFork) || !strings.Contains(err.Error(), c.want) || c.most == 1 && !errors.Is(err, ErrFull) || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("told: %v", err)
			}
			if len(r.errs) != 0 {
				t.Errorf("told again: %v", <-r.errs)
			}
		})
	}
}

// TestNoDescriptors: where this process has no descriptor left for one more process, a fork fails and the program goes on; and later ones are served again.
func TestNoDescriptors(t *testing.T) {
	for _, spare := range []int{0, 1, 3} { // it cannot even accept; it can, and not greet
		store := &testStore{most: 10, mapped: true}
		told := make(chan error, 100)
		c, err := New(Config{LocalBytes: MinLocalBytes, Store: store, Told: func(err error) { told <- err }})
		if err != nil {
			t.Fatal(err)
		}
		l, err := listen(c)
		if err != nil {
			t.Fatal(err)
		}
		conn := func() *net.UnixConn {
			conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			return conn
		}
		waiting, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.SetsockoptTimeval(waiting, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20})
		crowd := fillDescriptors(t, spare)
		if err := unix.Connect(waiting, &unix.SockaddrUnix{Name: l.path}); err != nil {
			t.Error(err)
		}
		n, err := unix.Read(waiting, make([]byte, 100))
		unix.Close(waiting)
		if n != 0 || err != nil && err != unix.ECONNRESET {
			t.Errorf("%d descriptors: %d bytes, %v; want the end of the connection", spare, n, err)
		}
		crowd()
		select {
		case err = <-told:
		case <-time.After(20 * time.Second):
			err = errors.New("nothing")
		}
		if !errors.Is(err, ErrProgram) || !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("%d descriptors: told %v", spare, err)
		}
		later := conn()
		if words, fds, err := receive(later, welcomeWords); err != nil || words[0] != magic || len(fds) != 3 {
			t.Errorf("%d descriptors: later: %v, %d descriptors, %v", spare, words, len(fds), err)
		} else {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
		later.Close()
		l.close()
	}
}

// fillDescriptors leaves so many descriptors free, until what it returns is called.
func fillDescriptors(t *testing.T, spare int) (undo func()) {
	t.Helper()
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: had.Max}); err != nil {
		t.Fatal(err)
	}
	var all []int
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		all = append(all, fd)
	}
	for range spare {
		unix.Close(all[len(all)-1])
		all = all[:len(all)-1]
	}
	return func() {
		for _, fd := range all {
			unix.Close(fd)
		}
		unix.Setrlimit(unix.RLIMIT_NOFILE, &had)
	}
}
