package remote_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// plant fills a directory, and lists what is in it.
func plant(t *testing.T, dir string) []string {
	t.Helper()
	files := map[string][]byte{
		"empty": {}, "small": []byte("ahoy\n"), "d/one": randomBytes(1, 4096), "d/e/two": randomBytes(2, 300_001),
		"large": randomBytes(3, 700_007), "a name with spaces": []byte("x"), "ünïcode": []byte("y"),
	}
	if testing.Short() { // fstest reads byte by byte, which the race detector makes long
		files["large"] = files["large"][:50_007]
		files["d/e/two"] = files["d/e/two"][:9001]
	}
	var names []string
	for name, data := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o640); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := os.Symlink("d/one", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return append(names, "link")
}

func TestFS(t *testing.T) {
	for _, c := range []struct {
		name, listen string
		cfg          remote.Config
	}{
		{"tcp", overTCP, remote.Config{}},
		{"shm", overShm(t), remote.Config{}},
		{"narrow", overTCP, remote.Config{IOBytes: 4096, Window: 1, Slots: 4, Calls: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			names := plant(t, dir)
			s := newStation(t, c.listen, ionode.Config{Dir: dir}, nil)
			cl := newClient(t, s.addr, c.cfg, nil)
			if err := fstest.TestFS(cl.FS(), names...); err != nil {
				t.Error(err)
			}
			for _, name := range names {
				want, _ := os.ReadFile(filepath.Join(dir, name))
				got, err := fs.ReadFile(cl.FS(), name)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
				}
			}
			eventually(t, "no handles are left", func() bool { return s.node.Stats().Handles == 0 })
		})
	}
}

func TestErrorsArePathErrors(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	s := newStation(t, overTCP, ionode.Config{Dir: dir}, nil)
	c := newClient(t, s.addr, remote.Config{}, nil)
	ctx := t.Context()
	open := func(name string, flags int) error {
		f, err := c.OpenFile(ctx, name, flags, 0o600)
		if err == nil {
			f.Close()
		}
		return err
	}
	cases := map[string]struct {
		got  error
		want syscall.Errno
	}{
		"nothing there":         {open("nonesuch", os.O_RDONLY), syscall.ENOENT},
		"a directory in a file": {open("small/x", os.O_RDONLY), syscall.ENOTDIR},
		"list a file":           {open("small", os.O_RDONLY|syscall.O_DIRECTORY), syscall.ENOTDIR},
		"write a directory":     {open("d", os.O_WRONLY), syscall.EISDIR},
		"exclusive":             {open("small", os.O_WRONLY|os.O_CREATE|os.O_EXCL), syscall.EEXIST},
		"append":                {open("small", os.O_WRONLY|os.O_APPEND), syscall.EINVAL},
		"long name":             {open(string(bytes.Repeat([]byte("n"), 300)), os.O_RDONLY), syscall.ENAMETOOLONG},
		"empty name":            {open("", os.O_RDONLY), syscall.ENOENT},
		"zero byte":             {open("a\x00b", os.O_RDONLY), syscall.EINVAL},
		"above":                 {open("../x", os.O_RDONLY), syscall.EACCES},
		"absolute":              {open("/etc/passwd", os.O_RDONLY), syscall.EACCES},
		"remove full directory": {c.Remove(ctx, "d", 0), syscall.ENOTEMPTY},
		"remove nothing":        {c.Remove(ctx, "nonesuch", 0), syscall.ENOENT},
		"unlink a directory":    {c.Remove(ctx, "d", 2), syscall.EISDIR},
		"rmdir a file":          {c.Remove(ctx, "small", 3), syscall.ENOTDIR},
		"negative size":         {c.Truncate(ctx, "small", -1), syscall.EINVAL},
	}
	_, again := c.Mkdir(ctx, "d", 0o755)
	cases["mkdir again"] = struct {
		got  error
		want syscall.Errno
	}{again, syscall.EEXIST}
	for name, k := range cases {
		var pe *fs.PathError
		if !errors.Is(k.got, k.want) || !errors.As(k.got, &pe) {
			t.Errorf("%s: %v (%T), want %v in a PathError", name, k.got, k.got, k.want)
		}
	}
	var le *os.LinkError
	if err := c.Rename(ctx, "nonesuch", "x"); !errors.Is(err, syscall.ENOENT) || !errors.As(err, &le) {
		t.Errorf("rename of nothing: %v", err)
	}
	if _, err := c.FS().Open("nonesuch"); !os.IsNotExist(err) {
		t.Errorf("os.IsNotExist does not know %v", err)
	}
}

func TestEscapes(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"abs": secret, "rel": "../" + filepath.Base(outside) + "/secret", "dir": outside, "new": outside + "/made"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newStation(t, overTCP, ionode.Config{Dir: dir}, nil)
	c := newClient(t, s.addr, remote.Config{}, nil)
	ctx := t.Context()
	for _, name := range []string{"abs", "rel", "dir", "dir/secret", "new", "new/x"} {
		for _, flags := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_TRUNC} {
			if f, err := c.OpenFile(ctx, name, flags, 0o600); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s, flags %#x: %v, want a refusal", name, flags, err)
				if f != nil {
					f.Close()
				}
			}
		}
		if _, err := c.Stat(ctx, name); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("stat %s: %v", name, err)
		}
		if err := c.Truncate(ctx, name, 0); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("truncate %s: %v", name, err)
		}
	}
	for _, p := range [][2]string{{"mine/", "x"}, {"abs/", "x"}, {"mine", "x/"}} {
		if err := c.Rename(ctx, p[0], p[1]); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("rename %s to %s: %v", p[0], p[1], err)
		}
	}
	for _, p := range [][2]string{{"dir/..", "x"}, {".", "x"}, {"mine", "dir/.."}, {"mine", "."}} {
		if err := c.Rename(ctx, p[0], p[1]); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("rename %s to %s: %v", p[0], p[1], err)
		}
	}
	for what, err := range map[string]error{
		"remove":      c.Remove(ctx, "dir/secret", 0),
		"rename to":   c.Rename(ctx, "mine", "dir/mine"),
		"rename from": c.Rename(ctx, "dir/secret", "stolen"),
		"rename up":   c.Rename(ctx, "mine", "../mine"),
	} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.Mkdir(ctx, "dir/sub", 0o755); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("mkdir: %v", err)
	}
	if _, err := c.OpenFile(ctx, "pipe", os.O_RDONLY, 0); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a pipe: %v", err)
	}
	left, _ := os.ReadDir(outside)
	if data, err := os.ReadFile(secret); err != nil || string(data) != "s" || len(left) != 1 {
		t.Errorf("outside is %v, and the secret %q, %v", left, data, err)
	}
	if target, err := c.Readlink(ctx, "abs"); err != nil || target != secret {
		t.Errorf("readlink: %q, %v", target, err)
	}
	if info, err := c.Lstat(ctx, "abs"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("lstat: %v, %v", info, err)
	}
}

// TestTimesByLinks has the node set times of what links lead to, and of nothing outside.
func TestTimesByLinks(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "served")
	if err := os.MkdirAll(filepath.Join(dir, "d/e"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := time.Date(2000, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, name := range []string{filepath.Join(parent, "out"), filepath.Join(dir, "f")} {
		if err := os.WriteFile(name, nil, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, long, long); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "f", "d/link": "../f", "chain": "d/link", "d/up": "..", "side": "d/e",
		"loop": "loop", "out": "../out", "d/out": "../../out", "abs": filepath.Join(parent, "out"), "none": "nonesuch"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := newStation(t, overTCP, ionode.Config{Dir: dir}, nil)
	p, ep := rawPeer(t, s.addr)
	calls := wire.NewCalls()
	at := time.Date(2100, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, want := range map[string]struct {
		changed string
		err     error
	}{
		"f": {"f", nil}, "link": {"f", nil}, "d/link": {"f", nil}, "chain": {"f", nil}, "d/up": {".", nil}, "d/up/f": {"f", nil}, ".": {".", nil},
		"d/..": {".", nil}, "side/": {"d/e", nil}, "side/../link": {"f", nil}, "f/": {"", syscall.ENOTDIR}, "link/": {"", syscall.ENOTDIR}, "loop": {"", syscall.ELOOP},
		"none": {"", syscall.ENOENT}, "out": {"", syscall.EACCES}, "d/out": {"", syscall.EACCES}, "abs": {"", syscall.EACCES}, "out/": {"", syscall.EACCES},
	} {
		at = at.Add(time.Hour)
		_, err := calls.Set.Call(t.Context(), p, ep, wire.SetRequest{Path: name, What: wire.SetMtime, Mtime: wire.TimeOf(at)})
		if got := wire.Local(err); got != want.err {
			t.Errorf("the time of %s: %v, want %v", name, got, want.err)
		}
		if want.err != nil {
			continue
		}
		if info, err := os.Lstat(filepath.Join(dir, want.changed)); err != nil || !info.ModTime().Equal(at) {
			t.Errorf("after that of %s was set, %s is of %v, %v; want %v", name, want.changed, info.ModTime(), err, at)
		}
	}
	if info, err := os.Stat(filepath.Join(parent, "out")); err != nil || !info.ModTime().Equal(long) {
		t.Errorf("the file outside is of %v, %v", info.ModTime(), err)
	}
}
