package doctor

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestJudgeDisks(t *testing.T) {
	if c := judgeDisks(nil); c.State != Good || c.Do != "" {
		t.Errorf("%+v", c)
	}
	if c := judgeDisks(unix.ENOMEM); c.State != Limited || !strings.Contains(c.Do, "ulimit -l") {
		t.Errorf("%+v", c)
	}
	if c := judgeDisks(errors.New("forbidden by a filter")); c.State != Limited || !strings.Contains(c.Detail, "filter") || c.Do == "" {
		t.Errorf("%+v", c)
	}
}

// TestJudgeDirect: what cannot be lent past the page cache is said with the way out.
func TestJudgeDirect(t *testing.T) {
	for err, do := range map[error]string{nil: "", unix.EINVAL: "leave \",direct\" away", unix.EOPNOTSUPP: "ext4", unix.EACCES: "as the user"} {
		if c := judgeDirect("/srv", err); (c.State == Good) != (err == nil) || !strings.Contains(c.Do, do) || !strings.Contains(c.Detail, "/srv") {
			t.Errorf("%v: %+v", err, c)
		}
	}
}
