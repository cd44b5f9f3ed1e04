package fabrictest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// core checks what the fabric does by itself, whatever its transport. It runs over one that maps memory and one that does not.
func core(t *testing.T, f Factory) {
	if suite.BeChild(roles(f)) {
		return
	}
	for group, checks := range map[string][]check{"message": messageCore(), "memory": memoryCore(), "key": keyCore(), "progress": progressCore()} {
		t.Run(group, func(t *testing.T) {
			for _, c := range checks {
				suite.Run(t, c.name, patience, func(r *suite.Rig) { c.run(&rig{Rig: r, make: f}) })
			}
		})
	}
}

func TestCoreTCP(t *testing.T) {
	core(t, func() (fabric.Transport, string, error) {
		tr, err := tcp.New(tcp.Config{})
		return tr, "tcp://127.0.0.1:0", err
	})
}

func TestCoreShm(t *testing.T) {
	dir, n := t.TempDir(), 0
	core(t, func() (fabric.Transport, string, error) {
		n++
		tr, err := shm.New(shm.Config{})
		return tr, "shm://" + filepath.Join(dir, fmt.Sprint(n)), err
	})
}
