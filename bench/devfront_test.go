package bench

import (
	"net"
	"path/filepath"
	"testing"
)

// TestAttach: a client that was greeted only is not attached.
func TestAttach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("NBDMAGICIHAVEOPT\x00\x03"))
			c.Read(make([]byte, 64))
			c.Close()
		}
	}()
	if c, err := attach(path); err == nil {
		c.Close()
		t.Error("a server that answers nothing has a client attached")
	}
}

// TestFioRate: what fio prints is a rate, or an error that shows it.
func TestFioRate(t *testing.T) {
	for _, c := range []struct {
		out  string
		rate float64
	}{
		{"fio: connected to NBD server\n" + `{"jobs": [{"error": 0, "read": {"iops": 1234.5}, "write": {"iops": 0}}]}`, 1234.5},
		{`{"jobs": [{"error": 0, "read": {"iops": 0}, "write": {"iops": 7}}]}`, 7},
		{`{"jobs": [{"error": 5, "read": {"iops": 9}}]}`, 0},
		{`{"jobs": [{"error": 0}]}`, 0},
		{`{"jobs": []}`, 0},
		{"fio: connection refused", 0},
		{"", 0},
	} {
		if got, err := fioRate([]byte(c.out)); got != c.rate || (err == nil) != (c.rate > 0) {
			t.Errorf("%q: %v, %v", c.out, got, err)
		}
	}
}
