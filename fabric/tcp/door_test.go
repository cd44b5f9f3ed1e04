package tcp

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/share"
)

// TestSilentDiallers: however many connections say nothing, and come again when they are ended, one that does is served.
func TestSilentDiallers(t *testing.T) {
	tr, err := New(Config{AcceptTime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	tr.hellos = share.Door{Limit: 256, Grace: 250 * time.Millisecond} // fewer than there are
	addr, err := tr.Listen("127.0.0.1:0", func(p fabric.Pending) {
		_, _ = io.Copy(p, p)
		p.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	leave := crowd(addr)
	for range 3 {
		echo(t, "127.0.0.2", addr, 0) // from elsewhere: it is not ended for them, however slowly the test runs
	}
	leave()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// TestSlowDialler: beside them, one from the same host that is slow, as over a long link, has the time that HELLO takes.
func TestSlowDialler(t *testing.T) {
	tr, err := New(Config{AcceptTime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	addr, err := tr.Listen("127.0.0.1:0", func(p fabric.Pending) {
		_, _ = io.Copy(p, p)
		p.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	leave := crowd(addr)
	echo(t, "127.0.0.1", addr, 600*time.Millisecond)
	leave()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// TestOrigin: one host does not pass for many by the addresses that it has.
func TestOrigin(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:80":          "192.0.2.7",
		"[::ffff:192.0.2.7]:80": "192.0.2.7",
		"[2001:db8::1]:80":      "2001:db8::/64",
		"[2001:db8::ffff:2]:80": "2001:db8::/64",
		"[2001:db8:0:1::1]:80":  "2001:db8:0:1::/64",
		"[fe80::1%lo]:80":       "fe80::1%lo",
		"@":                     "",
	} {
		if got := origin(text(addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}

// text is an address.
type text string

func (text) Network() string  { return "tcp" }
func (a text) String() string { return string(a) }

// echo says something in two parts, and wants it back.
func echo(t *testing.T, from, addr string, pause time.Duration) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	buf := make([]byte, 3)
	for _, part := range []string{"hel", "lo!"} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != part {
			t.Errorf("%q, %v", buf, err)
		}
		time.Sleep(pause)
	}
}

// crowd is connections that say nothing, and come again when they are ended, until leave is called.
func crowd(addr string) (leave func()) {
	const silent = 400
	stop := make(chan struct{})
	var crowd sync.WaitGroup
	first := make(chan struct{}, silent)
	for range silent {
		crowd.Go(func() {
			for told := false; ; {
				c, err := net.Dial("tcp", addr)
				if !told {
					told = true
					first <- struct{}{}
				}
				if err != nil {
					return
				}
				over := make(chan struct{})
				go func() {
					select {
					case <-stop:
					case <-over:
					}
					c.Close()
				}()
				_, _ = c.Read(make([]byte, 1))
				close(over)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range silent {
		<-first
	}
	return func() {
		close(stop)
		crowd.Wait()
	}
}
