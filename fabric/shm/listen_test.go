package shm

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// deadSocket leaves a socket file on which nobody listens.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	ln.SetUnlinkOnClose(false)
	must(t, ln.Close())
}

func TestListenAddresses(t *testing.T) {
	dir := t.TempDir()
	taken := newTransport(t, Config{})
	name := uniqueName()
	for _, addr := range []string{dir + "/live", name} {
		if _, err := taken.Listen(addr, func(p fabric.Pending) { p.Close() }); err != nil {
			t.Fatal(err)
		}
	}
	deadSocket(t, dir+"/dead")
	must(t, os.WriteFile(dir+"/file", nil, 0o600))
	must(t, os.Symlink(dir+"/dead2", dir+"/link"))
	tests := []struct {
		addr string
		want string // in the error; "" for none
	}{
		{dir + "/new", ""},
		{dir + "/dead", ""},
		{uniqueName(), ""},
		{"", "empty address"},
		{"@", "empty address"},
		{"a\x00b", "zero byte"},
		{dir + "/" + strings.Repeat("x", 120), "shorter path"},
		{dir + "/none/s", "folder"},
		{dir + "/live", "another process listens"},
		{name, "another process listens"},
		{dir + "/file", "is no socket"},
		{dir + "/link", "is no socket"},
	}
	for _, tt := range tests {
		tr := newTransport(t, Config{})
		bound, err := tr.Listen(tt.addr, func(p fabric.Pending) { p.Close() })
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Listen(%q): %v, want something about %q", tt.addr, err, tt.want)
			}
			continue
		}
		if err != nil || bound != tt.addr {
			t.Errorf("Listen(%q) = %q, %v", tt.addr, bound, err)
			continue
		}
		if strings.HasPrefix(bound, "@") {
			continue
		}
		st, err := os.Lstat(bound)
		must(t, err)
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", bound, st.Mode())
		}
		must(t, tr.Close())
		if _, err := os.Lstat(bound); !os.IsNotExist(err) {
			t.Errorf("Close left %s", bound)
		}
	}
}

func TestSocketMode(t *testing.T) {
	tr := newTransport(t, Config{SocketMode: 0o660})
	path := filepath.Join(t.TempDir(), "s")
	if _, err := tr.Listen(path, func(p fabric.Pending) { p.Close() }); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// TestRelativePath is dialled by what Listen returns.
func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	tr := newTransport(t, Config{})
	bound, err := tr.Listen("s", func(p fabric.Pending) { p.Close() })
	must(t, err)
	if !filepath.IsAbs(bound) {
		t.Errorf("bound %q", bound)
	}
	p, err := tr.Dial(context.Background(), bound)
	must(t, err)
	if p.RemoteAddr() != "shm://"+bound {
		t.Errorf("RemoteAddr %q", p.RemoteAddr())
	}
	must(t, p.Close())
}

// TestOneReplacesTheDead lets many replace the same dead socket: one wins.
func TestOneReplacesTheDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	deadSocket(t, path)
	var wg sync.WaitGroup
	var mu sync.Mutex
	winners := 0
	for range 8 {
		tr := newTransport(t, Config{})
		wg.Go(func() {
			_, err := tr.Listen(path, func(p fabric.Pending) { p.Close() })
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners++
			} else if !strings.Contains(err.Error(), "another process listens") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if winners != 1 {
		t.Errorf("%d listen at one path", winners)
	}
}

// TestCloseLeavesAnothersFile replaces the socket file under a listener.
func TestCloseLeavesAnothersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	tr := newTransport(t, Config{})
	if _, err := tr.Listen(path, func(p fabric.Pending) { p.Close() }); err != nil {
		t.Fatal(err)
	}
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, tr.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removed what was not its own: %v", err)
	}
}

func TestDialErrors(t *testing.T) {
	dir := t.TempDir()
	deadSocket(t, dir+"/dead")
	tr := newTransport(t, Config{})
	for addr, want := range map[string]string{
		dir + "/dead": "nobody listens",
		dir + "/none": "nobody listens",
		uniqueName():  "nobody listens",
		"":            "empty address",
	} {
		if _, err := tr.Dial(context.Background(), addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Dial(%q): %v, want something about %q", addr, err, want)
		}
	}
	must(t, tr.Close())
	if _, err := tr.Listen(uniqueName(), func(p fabric.Pending) { p.Close() }); err != ErrClosed {
		t.Errorf("Listen after Close: %v", err)
	}
}

// TestCrowdOfDiallers: beside 400 that say nothing and 200 that say a byte now and then, and come again when they are ended, who says something is served, though there
// are fewer places than that, and all are of one process.
func TestCrowdOfDiallers(t *testing.T) {
	const silent, slow = 400, 200
	tr := newTransport(t, Config{})
	addr := uniqueName()
	_, err := tr.Listen(addr, func(p fabric.Pending) {
		_, _ = io.Copy(p, p)
		p.Close()
	})
	must(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	came := make(chan struct{}, silent+slow)
	for i := range silent + slow {
		crowd.Go(func() {
			var once sync.Once
			for ctx.Err() == nil {
				c, err := (&net.Dialer{}).DialContext(ctx, "unix", addr)
				once.Do(func() { came <- struct{}{} })
				if err != nil { // its queue is full
					time.Sleep(10 * time.Millisecond)
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				for b := make([]byte, 1); err == nil; {
					if i < slow {
						_, err = c.Write(b)
					}
					if err == nil {
						_, err = c.Read(b)
					}
					time.Sleep(time.Duration(min(i, slow)) * time.Millisecond)
				}
				stop()
				c.Close()
			}
		})
	}
	for range silent + slow {
		<-came
	}
	for range 3 {
		for end := time.Now().Add(patience); ; { // on a busy machine it may be taken for one of them at first
			c, err := net.Dial("unix", addr)
			buf := make([]byte, 5)
			if err == nil {
				_ = c.SetDeadline(end)
				if _, err = c.Write([]byte("hello")); err == nil {
					_, err = io.ReadFull(c, buf)
				}
				c.Close()
			}
			if err == nil && string(buf) == "hello" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("beside the crowd: %q, %v", buf, err)
			}
		}
	}
	leave()
	crowd.Wait()
}

// TestDialWaitsForAPlace dials a socket that accepts nobody until its queue is full.
func TestDialWaitsForAPlace(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	addr := uniqueName()
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: addr}))
	must(t, unix.Listen(fd, 0))
	tr := newTransport(t, Config{})
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err := tr.Dial(ctx, addr)
		cancel()
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "accepts nobody") {
			t.Errorf("Dial: %v", err)
		}
		break
	}
	conn, _, err := unix.Accept(fd)
	must(t, err)
	unix.Close(conn)
	_, err = tr.Dial(context.Background(), addr)
	must(t, err)
}

// TestPending runs a HELLO of sorts, then starts; the deadline bounds reading.
func TestPending(t *testing.T) {
	a := &end{t: newTransport(t, Config{}), r: &recorder{}}
	b := newTransport(t, Config{})
	addr := uniqueName()
	hello := make(chan error, 1)
	_, err := a.t.Listen(addr, func(p fabric.Pending) {
		hello <- func() error {
			buf := make([]byte, 5)
			if _, err := io.ReadFull(p, buf); err != nil {
				return err
			}
			if _, err := p.Write(buf); err != nil {
				return err
			}
			l, err := p.Start(a.r, false)
			a.r.link = l
			return err
		}()
	})
	must(t, err)
	p, err := b.Dial(context.Background(), addr)
	must(t, err)
	cred, ok := p.PeerCred()
	if !ok || cred.PID != os.Getpid() || cred.UID != os.Getuid() || cred.GID != os.Getgid() {
		t.Errorf("PeerCred %+v, %v", cred, ok)
	}
	must(t, p.SetDeadline(time.Now().Add(10*time.Millisecond)))
	if _, err := p.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("Read past the deadline: %v", err)
	}
	must(t, p.SetDeadline(time.Now().Add(patience)))
	if _, err := p.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(p, buf); err != nil || string(buf) != "hello" {
		t.Fatalf("%q, %v", buf, err)
	}
	l, err := p.Start(&recorder{}, true)
	must(t, err)
	must(t, <-hello)
	must(t, p.Close()) // of a started one: nothing
	if _, err := p.Start(&recorder{}, true); err == nil {
		t.Error("started twice")
	}
	must(t, l.Send(testID, fabric.Normal, nil, nil))
	until(t, "a frame", func() bool { return a.r.frames == 1 }, a.t)
}

// TestPendingBound: connections that never say anything are bounded, and do not keep out who does: the oldest makes room.
func TestPendingBound(t *testing.T) {
	tr := newTransport(t, Config{})
	addr := uniqueName()
	var held sync.WaitGroup
	held.Add(maxPending + 1)
	_, err := tr.Listen(addr, func(p fabric.Pending) {
		defer held.Done()
		_, _ = io.Copy(p, p)
		p.Close()
	})
	must(t, err)
	var conns []net.Conn
	for range maxPending + 1 {
		c, err := net.Dial("unix", addr)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(patience)))
		conns = append(conns, c)
	}
	buf := make([]byte, 5)
	last := conns[maxPending]
	if _, err := last.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(last, buf); err != nil || string(buf) != "hello" {
		t.Errorf("the last connection: %q, %v", buf, err)
	}
	if _, err := conns[0].Read(buf); err != io.EOF {
		t.Errorf("the first connection: %v, want EOF", err)
	}
	for _, c := range conns {
		c.Close()
	}
	held.Wait()
}

func TestConfig(t *testing.T) {
	tests := []struct {
		cfg  Config
		want string
	}{
		{Config{}, ""},
		{Config{Slots: minSlots, DataBytes: minDataBytes, SocketMode: 0o600, MaxLinks: 1}, ""},
		{Config{Slots: 1000}, "power of two"},
		{Config{Slots: -16}, "power of two"},
		{Config{Slots: maxSlots * 2}, "power of two"},
		{Config{DataBytes: 4096}, "power of two"},
		{Config{SocketMode: os.ModeSetuid | 0o600}, "SocketMode"},
		{Config{MaxLinks: 5000}, "MaxLinks"},
	}
	for _, tt := range tests {
		_, err := New(tt.cfg)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want something about %q", tt.cfg, err, tt.want)
		}
	}
}
