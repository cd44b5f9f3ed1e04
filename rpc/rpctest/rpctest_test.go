package rpctest_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTCP(t *testing.T) {
	rpctest.Run(t, func() (fabric.Transport, string, error) {
		tr, err := tcp.New(tcp.Config{})
		return tr, "tcp://127.0.0.1:0", err
	})
}

func TestShm(t *testing.T) {
	// Short, for a socket's path has 108 bytes at most; and a child of the suite ends without clean-up.
	dir, err := os.MkdirTemp("", "rpc")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	n := 0
	rpctest.Run(t, func() (fabric.Transport, string, error) {
		n++
		tr, err := shm.New(shm.Config{})
		return tr, "shm://" + filepath.Join(dir, string(rune('a'+n/26%26))+string(rune('a'+n%26))+".sock"), err
	})
}
