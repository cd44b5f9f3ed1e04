package node

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
)

// TestOtherUsers: another user of this machine cannot connect to a node's
// socket, whose mode is 0600, though its folder is open to all.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	dir, err := os.MkdirTemp("", "wherry")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	n, err := New(Config{Name: "n1", Listen: []string{"shm://" + path}, Tokens: tokens(t, cluster.CapMember, "node")})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	connect := func(uid int) error {
		result := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine: it has lost its rights
			if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0); errno != 0 {
				result <- errno
				return
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
				unix.Close(fd)
			}
			result <- err
		}()
		return <-result
	}
	if err := connect(0); err != nil {
		t.Errorf("the same user: %v", err)
	}
	if err := connect(65534); err != unix.EACCES {
		t.Errorf("another user: %v, want %v", err, unix.EACCES)
	}
}
