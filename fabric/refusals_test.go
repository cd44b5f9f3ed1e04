package fabric

import (
	"fmt"
	"io"
	"log/slog"
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
	for _, step := range []struct {
		what  string
		after time.Duration
		come  int
		says  []string // the lines
	}{
		{"nobody", 0, 0, nil},
		{"the first", 0, 1, []string{"peer=somewhere left_out=0"}},
		{"a crowd at once", 0, 300, nil},
		{"a crowd a little later", refusalEvery - 1, 2, nil},
		{"the rest when a second is over", 1, 0, []string{"peers left_out=302"}},
		{"another at once", 0, 1, nil},
		{"another a second later, and more", refusalEvery, 3, []string{"peer=somewhere left_out=1"}},
		{"much later", time.Hour, 0, []string{"peers left_out=2"}},
		{"much later still", time.Hour, 0, nil},
		{"one more", 0, 1, []string{"peer=somewhere left_out=0"}},
	} {
		now += int64(step.after)
		log.Reset()
		for range step.come {
			e.accept(stranger{})
		}
		e.keepAlive = 0 // the leader comes by
		e.tick(now)
		var got []string
		for line := range strings.Lines(log.String()) {
			_, peer, _ := strings.Cut(line, "msg=\"")
			who := "peers"
			if strings.HasPrefix(peer, "peer not") {
				who = "peer=somewhere"
			}
			_, left, _ := strings.Cut(strings.TrimSpace(line), "left_out=")
			got = append(got, fmt.Sprintf("%s left_out=%s", who, left))
		}
		if fmt.Sprint(got) != fmt.Sprint(step.says) {
			t.Errorf("%s: the log says %q, want %q\n%s", step.what, got, step.says, log.String())
		}
	}
}
