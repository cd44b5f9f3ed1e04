package wire

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// maxErrno is above Linux' error numbers, and the kernel's own bound for them.
const maxErrno = 4095

// Error makes the answer of a call that failed with an error number.
func Error(errno syscall.Errno) error {
	return &rpc.Error{Code: rpc.FirstCode + rpc.Code(errno), Text: errno.Error()}
}

// Errno is the error number that an error comes down to; EIO if it has none.
func Errno(err error) syscall.Errno {
	var number syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &number):
		return number
	case errors.Is(err, fs.ErrClosed):
		return syscall.EBADF
	case errors.Is(err, fs.ErrInvalid):
		return syscall.EINVAL
	}
	return syscall.EIO
}

// Local is a call's error as a program expects it from a file. What the node answered is an error
// number and nothing else. A lost or silent node, and all that nobody foresaw, is
// EIO, with the call's error beside it.
func Local(err error) error {
	var remote *rpc.RemoteError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &remote) && remote.Code > rpc.FirstCode && remote.Code <= rpc.FirstCode+maxErrno:
		return syscall.Errno(remote.Code - rpc.FirstCode)
	case errors.Is(err, rpc.ErrDenied):
		return fmt.Errorf("%w: %w", syscall.EACCES, err)
	case errors.Is(err, rpc.ErrNoSuchCall):
		return fmt.Errorf("%w: %w", syscall.ENOSYS, err)
	}
	return fmt.Errorf("%w: %w", syscall.EIO, err)
}

// Transient reports whether a call was refused before anything of it happened, so
// that it can be made again.
func Transient(err error) bool {
	return errors.Is(err, rpc.ErrBusy) || errors.Is(err, fabric.ErrBackpressure)
}
