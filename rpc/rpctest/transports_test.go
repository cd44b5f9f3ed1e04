package rpctest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/internal/seeds"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

func TestMain(m *testing.M) {
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// Elements listen at an address of loopback that nothing else uses: the suite kills some, and has them come back at
// ports that nobody may get meanwhile.
const (
	host    = "127.7.7.9"
	anyPort = "tcp://" + host + ":0"
)

func TestTCP(t *testing.T) {
	runSuite(t, func() (fabric.Transport, string, error) {
		tr, err := tcp.New(tcp.Config{})
		return tr, anyPort, err
	})
}

// TestTLS is the same over TLS, which is what there is beyond loopback.
func TestTLS(t *testing.T) {
	id, err := ca.Load(credentials(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	runSuite(t, func() (fabric.Transport, string, error) {
		tr, err := tcp.New(tcp.Config{TLS: id})
		return tr, anyPort, err
	})
}

// credentials are a certificate that this process and its children have in common:
// the first one leaves it in a folder that the environment names.
func credentials(t *testing.T) ca.Files {
	t.Helper()
	const where = "WHERRY_RPCTEST_CREDENTIALS"
	dir := os.Getenv(where)
	if dir == "" {
		dir = t.TempDir()
		authority, err := ca.Init(dir, "rpctest", ca.DefaultLife)
		if err != nil {
			t.Fatal(err)
		}
		_, cert, key, err := authority.Issue(ca.Request{Principal: cluster.Principal{Name: "everybody", Caps: cluster.CapMember}, Node: true, Hosts: []string{host}})
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"own.crt": cert, "own.key": key} {
			if err := ca.WriteNew(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(where, dir)
	}
	return ca.Files{Cert: filepath.Join(dir, "own.crt"), Key: filepath.Join(dir, "own.key"), CA: filepath.Join(dir, ca.CertFile), List: filepath.Join(dir, ca.ListFile)}
}

func TestShm(t *testing.T) {
	// Short, for a socket's path has 108 bytes at most; and a child of the suite ends without clean-up.
	dir, err := os.MkdirTemp("", "rpc")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	n := 0
	runSuite(t, func() (fabric.Transport, string, error) {
		n++
		tr, err := shm.New(shm.Config{})
		return tr, "shm://" + filepath.Join(dir, string(rune('a'+n/26%26))+string(rune('a'+n%26))+".sock"), err
	})
}

var trials = seeds.Flags("./rpc/rpctest")

// TestSim is the same over wires that lose, double and reorder packets and have little room; with every
// other seed they hand over descriptors. In -short, which is how the race detector runs it, one seed has to do.
func TestSim(t *testing.T) {
	n := 2
	if testing.Short() {
		n = 1
	}
	trials.Each(t, n, func(seed uint64, fail seeds.Fail) {
		l := sim.NewLive(seed, sim.WireFaults{MinDelay: 2 * time.Microsecond, MaxDelay: 200 * time.Microsecond, Loss: 0.03, Duplicate: 0.1,
			Detect: time.Millisecond, Lag: 20 * time.Microsecond, Room: 16, Burst: 4, Pieces: 0.3, Descriptors: seed%2 == 0})
		runLocal(t, l.Port)
		if t.Failed() {
			fail("%v", l)
		}
	})
}
