package doctor

import (
	"context"

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
	}
	return c
}
