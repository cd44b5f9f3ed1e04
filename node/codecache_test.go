package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
)

// TestSecretOfTheCodeCache: a node starts with a code cache whose secret is damaged, and makes another. It refuses one that others could have changed,
// and what it says then is not about memory.
func TestSecretOfTheCodeCache(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	cfg := Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: tokens(t, cluster.CapMember, "node"), CodeCache: dir}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 32 {
		t.Errorf("the secret is %v, %v", info, err)
	}
	cfg.Native = nativeWorker
	if err := errors.Join(os.WriteFile(path, make([]byte, 32), 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	if n, err = New(cfg); err == nil {
		n.Close()
	}
	if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "memory_bytes") {
		t.Errorf("with a secret that anybody may change: %v", err)
	}
}
