package excache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// directFile makes the file that testdata/direct.c reads, in a folder.
func directFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b := make([]byte, 16<<20)
	for i := range len(b) / 8 {
		binary.NativeEndian.PutUint64(b[8*i:], uint64(i)*2654435761)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openDirect opens it as a program outside would. Where the file system has no O_DIRECT there is nothing to test.
func openDirect(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "file"), os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sendsDirect is a socket that a message with descriptors is on its way to, the second of them with O_DIRECT.
func sendsDirect(t *testing.T, f *os.File) *os.File {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	from, to := os.NewFile(uintptr(pair[0]), "from"), os.NewFile(uintptr(pair[1]), "to")
	t.Cleanup(func() { from.Close(); to.Close() })
	if err := unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(2, int(f.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestDirect: whichever way a program comes to a descriptor with O_DIRECT, the flag is off, and what it reads into memory that leaves meanwhile is right.
func TestDirect(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	dir := directFile(t)
	program := filepath.Join(t.TempDir(), "direct")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", program, "testdata/direct.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, way := range []string{"open", "openat", "openat2", "handle", "alias", "fcntl", "fcntlalias", "pidfd", "inherits", "message", "messages", "spawns",
		"mkostemp", "mkostemp64", "mkostemps", "mkostemps64"} {
		t.Run(way, func(t *testing.T) {
			before := r.Stats().Outside.Direct
			f := openDirect(t, dir)
			var out bytes.Buffer
			cmd := r.command(program, way, dir)
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.Env = append(cmd.Env, fmt.Sprintf("THEIRS=%d", f.Fd()))
			switch {
			case way == "inherits":
				cmd.Stdin = f
			case strings.HasPrefix(way, "message"):
				cmd.ExtraFiles = []*os.File{sendsDirect(t, f)}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer limit(cmd).Stop()
			if err := cmd.Wait(); err != nil || out.String() != "ok\n" {
				t.Errorf("%v: %s", err, out.Bytes())
			}
			if r.Stats().Outside.Direct == before {
				t.Error("it is not counted")
			}
		})
	}
}

// TestPackets: a pipe of packets, which has the same flag, stays one.
func TestPackets(t *testing.T) {
	r := newRig(t, &testStore{most: 10, mapped: true}, 2<<20)
	program := filepath.Join(t.TempDir(), "direct")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", program, "testdata/direct.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_DIRECT|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	in, to := os.NewFile(uintptr(pipe[0]), "in"), os.NewFile(uintptr(pipe[1]), "to")
	defer in.Close()
	defer to.Close()
	cmd := r.command(program, "packets", ".")
	cmd.ExtraFiles = []*os.File{to}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v: %s", err, out)
	}
}
