package doctor

import (
	"errors"
	"strings"
	"testing"
)

func TestJudgeDisks(t *testing.T) {
	if c := judgeDisks(nil); c.State != Good || c.Do != "" {
		t.Errorf("%+v", c)
	}
	if c := judgeDisks(errors.New("forbidden by a filter")); c.State != Limited || !strings.Contains(c.Detail, "filter") || c.Do == "" {
		t.Errorf("%+v", c)
	}
}
