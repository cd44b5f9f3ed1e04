package doctor

import (
	"errors"
	"testing"
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
