package fabric

import (
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// stranger connects, says nothing and leaves.
type stranger struct{ Pending }

func (stranger) Read([]byte) (int, error)           { return 0, io.EOF }
func (stranger) Write(b []byte) (int, error)        { return len(b), nil }
func (stranger) SetDeadline(time.Time) error        { return nil }
func (stranger) PeerCred() (cred PeerCred, ok bool) { return cred, false }
func (stranger) RemoteAddr() string                 { return "somewhere" }
func (stranger) Close() error                       { return nil }

// TestRefusalsInTheLog has strangers come and go: a line a second says so, and how many it leaves out.
func TestRefusalsInTheLog(t *testing.T) {
	now := int64(1)
	var log strings.Builder
	e, err := New(Config{Manual: true, Now: func() int64 { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, c := range []struct {
		what  string
		after time.Duration
		come  int
		says  []int // the lines, each with how many it leaves out
	}{
		{"nobody", 0, 0, nil},
		{"the first", 0, 1, []int{0}},
		{"a crowd at once", 0, 300, nil},
		{"a crowd a little later", refusalEvery - 1, 2, nil},
		{"the rest when a second is over", 1, 0, []int{301}},
		{"another at once", 0, 1, nil},
		{"another a second later, and more", refusalEvery, 3, []int{1}},
		{"much later", time.Hour, 0, []int{1}},
		{"much later still", time.Hour, 0, nil},
		{"one more", 0, 1, []int{0}},
	} {
		now += int64(c.after)
		log.Reset()
		for range c.come {
			e.accept(stranger{})
		}
		e.keepAlive = 0 // the leader comes by
		e.tick(now)
		var got []int
		for line := range strings.Lines(log.String()) {
			_, left, _ := strings.Cut(line, `msg="peer not accepted" peer=somewhere err=EOF left_out=`)
			n, err := strconv.Atoi(strings.TrimSpace(left))
			if err != nil {
				t.Errorf("%s: %q", c.what, line)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, c.says) {
			t.Errorf("%s: the log leaves out %v, want %v", c.what, got, c.says)
		}
	}
}
