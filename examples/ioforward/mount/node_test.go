package mount

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newElement(t *testing.T, name string) *fabric.Element {
	t.Helper()
	over, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{over}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Close() })
	return el
}

func newClient(t *testing.T, dir string) *remote.Client {
	t.Helper()
	el := newElement(t, "ionode")
	served, err := ionode.New(el, ionode.Config{Dir: dir, Open: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { served.Close() })
	addr, err := el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := remote.New(t.Context(), newElement(t, "client"), remote.Config{Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestOpenFiles: a mount knows which files are open, until they are released.
func TestOpenFiles(t *testing.T) {
	n := &node{m: &Mount{cfg: Config{Client: newClient(t, t.TempDir())}}}
	var open []*file
	for _, name := range []string{"a", "a", "b"} {
		f, err := n.client().OpenFile(t.Context(), name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, n.open(f))
	}
	for i, left := range []int{2, 1, 0} {
		a, b := n.m.opened.of(open[0].ino), n.m.opened.of(open[2].ino)
		if len(a) != left || len(b) != 1 || b[0] != open[2] || left > 0 && a[left-1] != open[1] {
			t.Errorf("with %d open: %v and %v", left, a, b)
		}
		open[i].Release(t.Context())
	}
	if len(n.m.opened.files) != 0 {
		t.Errorf("with none: %v", n.m.opened.files)
	}
}
