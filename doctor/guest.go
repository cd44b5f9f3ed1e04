package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// virtual looks whether this processor can run a guest's instructions itself.
func virtual(context.Context) Check {
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return judgeKVM(err)
}

func judgeKVM(err error) Check {
	c := Check{Name: "kvm", State: Good, For: "guests at the processor's speed", Detail: "/dev/kvm can be opened"}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		c.State, c.Detail, c.Do = Limited, "no /dev/kvm: QEMU interprets a guest's instructions", "load kvm_intel or kvm_amd; in a virtual machine, have its host allow nested ones"
	default:
		c.State, c.Detail, c.Do = Limited, "/dev/kvm: "+err.Error()+": QEMU interprets a guest's instructions", "add the user that runs QEMU to the group kvm"
	}
	return c
}

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
