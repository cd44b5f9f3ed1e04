package doctor

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestQEMU: which versions are clients of vfio-user.
func TestQEMU(t *testing.T) {
	for out, want := range map[string]State{
		"QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)\n": Good,
		"QEMU emulator version 10.1.0\n":                                Good,
		"QEMU emulator version 10.0.2 (Debian …)\n":                     Missing,
		"QEMU emulator version 7.2.17\n":                                Missing,
		"":                                                              Missing,
	} {
		if c := judgeQEMU(out, nil); c.State != want || (c.Do == "") != (want == Good) {
			t.Errorf("%q: %+v", out, c)
		}
	}
	if c := judgeQEMU("", errors.New("not found")); c.State != Missing {
		t.Errorf("%+v", c)
	}
}

// TestJudgeKVM: whether guests are interpreted, and why.
func TestJudgeKVM(t *testing.T) {
	for err, do := range map[error]string{nil: "", unix.ENOENT: "nested", unix.EACCES: "group kvm"} {
		if c := judgeKVM(err); (c.State == Good) != (err == nil) || !strings.Contains(c.Do, do) {
			t.Errorf("%v: %+v", err, c)
		}
	}
}
