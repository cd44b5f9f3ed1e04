package seams

import (
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/fabrictest"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/enginetest"
)

func transport() (fabric.Transport, string, error) {
	t, err := NewTransport()
	return t, "stream://127.0.0.1:0", err
}

func TestEngine(t *testing.T) {
	enginetest.Run(t, Engine{"echo": Echo}, abi.Code{Form: "elf", Triple: "device-builtin", ABI: 2, Bytes: []byte("echo")})
}

func TestBacking(t *testing.T) {
	dir := t.TempDir()
	fabrictest.RunBacking(t, transport, func(size uint64) (fabric.Backing, error) { return OpenFile(dir, size) })
}

func TestTransport(t *testing.T) { fabrictest.Run(t, transport) }
