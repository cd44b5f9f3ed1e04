package doctor

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/uring"
)

// disks looks whether lent drives are read and written by io_uring.
func disks(context.Context) Check {
	r, err := uring.New(1, -1)
	if err == nil {
		err = r.Close()
	}
	return judgeDisks(err)
}

func judgeDisks(err error) Check {
	c := Check{Name: "io_uring", State: Good, For: "lending drives (wherry node --lend): many commands at once", Detail: "requests can be started without a thread for each"}
	if err != nil {
		c.State, c.Detail, c.Do = Limited, err.Error(), "nothing: up to 16 threads for each drive do it; Linux 5.6 with io_uring allowed for more at once"
		if errors.Is(err, unix.ENOMEM) { // before Linux 5.12 rings count as locked memory
			c.Do = "allow more locked memory (ulimit -l, or LimitMEMLOCK= of the service); until then up to 16 threads for each drive do it"
		}
	}
	return c
}

// direct looks whether files of the working directory can be lent past the page cache.
func direct(context.Context) Check {
	dir, err := os.Getwd()
	if err != nil {
		return judgeDirect("the working directory", err)
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0o600)
	if err == nil {
		unix.Close(fd) // it had no name, and is gone
	}
	return judgeDirect(dir, err)
}

func judgeDirect(dir string, err error) Check {
	c := Check{Name: "direct I/O", State: Good, For: "lending a file of this directory past the page cache (--lend nvme=NAME:PATH,direct)", Detail: dir + " takes O_DIRECT"}
	switch {
	case err == nil:
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		c.State, c.Detail, c.Do = Limited, dir+" does not take O_DIRECT, or no file without a name", "put the file on a disk's file system (ext4, XFS), or leave \",direct\" away"
	default:
		c.State, c.Detail, c.Do = Limited, dir+" cannot be tried: "+err.Error(), "run wherry doctor in the directory that the file lies in, as the user that the node runs as"
	}
	return c
}
