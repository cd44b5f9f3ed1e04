package excache

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uffd"
)

// TestInstall: what UFFDIO_COPY may answer. A page that is there already stays, and the rest comes; while mappings change, or the kernel has no memory, it is
// tried again, but not for ever; where there is no such mapping, or no such process, that is all.
func TestInstall(t *testing.T) {
	f, err := uffd.Open(uffd.Needed)
	if err != nil {
		if os.Getenv("CI") != "true" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	defer f.Close()
	type answer struct {
		pages int
		errno error
	}
	busy := func(errno unix.Errno) (all []answer) {
		for range busyTries {
			all = append(all, answer{0, errno})
		}
		return all
	}
	for name, c := range map[string]struct {
		answers []answer
		at      []int // the page that each call begins at
		placed  int
		err     error
	}{
		"all at once":          {[]answer{{4, nil}}, []int{0}, 4, nil},
		"EEXIST first":         {[]answer{{0, unix.EEXIST}, {3, nil}}, []int{0, 1}, 4, nil},
		"EEXIST in the middle": {[]answer{{1, unix.EEXIST}, {2, nil}}, []int{0, 2}, 4, nil},
		"EEXIST last":          {[]answer{{3, unix.EEXIST}}, []int{0}, 3, nil},
		"EAGAIN":               {[]answer{{0, unix.EAGAIN}, {1, unix.EAGAIN}, {3, nil}}, []int{0, 0, 1}, 4, nil},
		"ENOMEM":               {[]answer{{2, unix.ENOMEM}, {2, nil}}, []int{0, 2}, 4, nil},
		"ENOENT":               {[]answer{{1, unix.ENOENT}}, []int{0}, 1, unix.ENOENT},
		"ESRCH":                {[]answer{{0, unix.ESRCH}}, []int{0}, 0, unix.ESRCH},
		"ENOMEM for ever":      {busy(unix.ENOMEM), nil, 0, unix.ENOMEM},
		"EAGAIN for ever":      {busy(unix.EAGAIN), nil, 0, unix.EAGAIN},
	} {
		t.Run(name, func(t *testing.T) {
			s, calls := &session{faults: f}, 0
			err := s.install(1<<30, 4*PageBytes, func(n int) (int, error) {
				if c.at != nil && (calls == len(c.at) || n != c.at[calls]*PageBytes) {
					t.Fatalf("call %d is for byte %d", calls, n)
				}
				if calls == len(c.answers) {
					t.Fatal("it is tried for ever")
				}
				a := c.answers[calls]
				calls++
				return a.pages * PageBytes, a.errno
			})
			if !errors.Is(err, c.err) || calls != len(c.answers) || s.placed != c.placed*PageBytes {
				t.Errorf("%v after %d calls with %d bytes there; want %v, %d, %d", err, calls, s.placed, c.err, len(c.answers), c.placed*PageBytes)
			}
		})
	}
}
