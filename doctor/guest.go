package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// guests tells whether a drive can be plugged into a guest here: QEMU's client of vfio-user is there since 10.1.
func guests(ctx context.Context) Check {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output()
	return judgeQEMU(string(out), err)
}

var qemuVersion = regexp.MustCompile(`version (\d+)\.(\d+)`)

func judgeQEMU(out string, err error) Check {
	c := Check{Name: "guests", State: Good, For: "wherry dev borrow --as vfio-user: a drive in a guest, whose memory is memory-backend-memfd,share=on"}
	const do = "install QEMU 10.1 or later (Debian 13: qemu-system-x86 of trixie-backports); --as nbd works without"
	m := qemuVersion.FindStringSubmatch(out)
	if err != nil || m == nil {
		c.State, c.Detail, c.Do = Missing, "no qemu-system-x86_64 that says its version", do
		return c
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	c.Detail = fmt.Sprintf("QEMU %d.%d", major, minor)
	if major < 10 || major == 10 && minor < 1 {
		c.State, c.Detail, c.Do = Missing, c.Detail+" has no device vfio-user-pci", do
	}
	return c
}
