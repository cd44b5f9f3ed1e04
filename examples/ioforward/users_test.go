package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user who owns nothing here.
const nobody = 65534

// shellAs runs a shell's command line as another user.
func shellAs(t *testing.T, user uint32, dir, line string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C") // for what it says
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// servedToUsers makes a directory with what is for all to read, to write, and for its owner only.
func servedToUsers(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"own": 0o700, "shut": 0, "all": 0o777} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "f"), []byte("in "+name), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "none": 0, "read": 0o644, "write": 0o666} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestOtherUsers: with --allow-other, users besides the one who mounted may do what
// the modes grant to them, and without it nothing.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	served := servedToUsers(t)
	_, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr, "--allow-other")
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the way there
		t.Fatal(err)
	}
	for _, line := range []string{
		"cat secret", "echo x >> secret", "cat none", "echo x > none", "echo x >> read", "echo x > new", "mkdir new",
		"rm -f read", "rm -f write", "mv read moved", "chmod 777 read", "truncate -s 0 read", "touch -d @0 read",
		"ls own", "cat own/f", "rm -f own/f", "ls shut", "cat shut/f",
	} {
		if out, err := shellAs(t, nobody, dir, line); err == nil || !strings.Contains(out, "denied") && !strings.Contains(out, "not permitted") {
			t.Errorf("another user's %q: %v, %q; want a refusal", line, err, out)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"cat read", "read"}, {"echo x >> write && cat write", "writex\n"}, {"cat all/f", "in all"},
		{"echo n > all/new && cat all/new", "n\n"}, {"rm all/f", ""},
	} {
		if out, err := shellAs(t, nobody, dir, c.line); err != nil || out != c.want {
			t.Errorf("another user's %q: %v, %q; want %q", c.line, err, out, c.want)
		}
	}
	for name, want := range map[string]string{"secret": "secret", "none": "none", "read": "read", "write": "writex\n", "own/f": "in own", "all/new": "n\n"} {
		for _, at := range []string{served, dir} { // who mounted, root, sees all
			if got, err := os.ReadFile(filepath.Join(at, name)); err != nil || string(got) != want {
				t.Errorf("%s has %q, %v; want %q", filepath.Join(at, name), got, err, want)
			}
		}
	}
	unmounts(t, dir, p)

	dir, p = mountAt(t, addr)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := shellAs(t, nobody, "/", "cat "+dir+"/read"); err == nil {
		t.Errorf("without --allow-other another user reads %q", out)
	}
	// Who mounts alone may have a number that is another's at the node: the node judges, not this kernel.
	if table := mustTool(t, "grep", " "+dir+" ", "/proc/self/mounts"); strings.Contains(table, "default_permissions") {
		t.Errorf("without --allow-other the kernel judges by modes: %s", table)
	}
	unmounts(t, dir, p)
}

// TestModesOfFiles sets modes on a mount: they are the node's, 0 too.
func TestModesOfFiles(t *testing.T) {
	served := t.TempDir()
	_, addr := serveDir(t, served, anyPort)
	dir, p := mountAt(t, addr, "--cache", "1ms") // go to the node for each
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "folder"} {
		for _, mode := range []os.FileMode{0o400, 0, 0o751, 0o007} {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
			for _, at := range []string{served, dir} {
				info, err := os.Lstat(filepath.Join(at, name))
				if err != nil {
					t.Fatal(err)
				}
				if got := info.Mode().Perm(); got != mode {
					t.Errorf("%s, set to %v, is %v at %s", name, mode, got, at)
				}
			}
		}
	}
	unmounts(t, dir, p)
}
