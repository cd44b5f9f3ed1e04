package remote_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	overTCP = "tcp://127.0.0.1:0"
	// apart is for a node that comes back at its port: an address of loopback that nothing else uses, so that nobody
	// gets the port meanwhile.
	apart = "tcp://127.7.7.11:0"
)

func overShm(t *testing.T) string {
	return fmt.Sprintf("shm://@ioforward-%s-%d", t.Name(), time.Now().UnixNano())
}

// who is an Auth that shows a name, and gives everybody the capabilities that it has for theirs.
type who struct {
	self string
	caps map[string]cluster.Caps
}

func (w who) Self() (string, []byte) {
	if w.self == "" {
		return "", nil
	}
	return w.self, []byte("a secret that both ends of this test know")
}

func (w who) Lookup(name string) ([]byte, fabric.Principal, bool) {
	_, secret := who{self: name}.Self()
	return secret, fabric.Principal{Name: name, Caps: uint32(w.caps[name])}, true
}

func (w who) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

func newElement(t *testing.T, name string, auth fabric.Auth) *fabric.Element {
	t.Helper()
	a, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{a, b}, Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	return el
}

// station is a node that a test can stop and start again.
type station struct {
	t    *testing.T
	cfg  ionode.Config
	auth fabric.Auth
	addr string
	el   *fabric.Element
	node *ionode.Node
}

func (s *station) start(listen string) {
	s.t.Helper()
	s.el = newElement(s.t, "ionode", s.auth)
	var err error
	if s.node, err = ionode.New(s.el, s.cfg); err == nil {
		s.addr, err = s.el.Listen(listen)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *station) stop() {
	if s.el == nil {
		return
	}
	if err := s.node.Close(); err != nil {
		s.t.Error(err)
	}
	s.el.Close()
	s.el = nil
}

func newStation(t *testing.T, listen string, cfg ionode.Config, auth fabric.Auth) *station {
	t.Helper()
	cfg.Open = auth == nil
	s := &station{t: t, cfg: cfg, auth: auth}
	s.start(listen)
	t.Cleanup(s.stop)
	return s
}

func newClient(t *testing.T, addr string, cfg remote.Config, auth fabric.Auth) *remote.Client {
	t.Helper()
	cfg.Addr = addr
	el := newElement(t, "client", auth)
	c, err := remote.New(t.Context(), el, cfg)
	if err != nil {
		el.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		el.Close()
	})
	return c
}

// eventually waits for what happens by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}
