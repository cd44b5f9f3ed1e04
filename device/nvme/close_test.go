package nvme

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
)

// slow is a Backing whose Starter ends requests when it is told to.
type slow struct {
	mu     sync.Mutex
	begun  []uint64
	over   bool // they may end
	closed bool
}

func (s *slow) Size() uint64                 { return 1 << 20 }
func (s *slow) Do(*Request, bool) error      { return errors.New("not by a call") }
func (s *slow) Starter(int) (Starter, error) { return starter{s}, nil }
func (s *slow) Close() error                 { return nil }

type starter struct{ *slow }

func (s starter) Start(_ *Request, token uint64) bool {
	s.begun = append(s.begun, token)
	return true
}

func (s starter) Submit() (bool, error) { return false, nil }
func (s starter) Arm() bool             { return false }
func (s starter) Disarm()               {}

func (s starter) Reap(_ int, ended func(uint64, int, error)) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		return 0
	}
	begun := s.begun
	s.begun = nil
	for _, token := range begun {
		ended(token, 512, nil)
	}
	return len(begun)
}

func (s starter) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// TestCloseWaitsForTheDisk: the memory of a request that was started is the disk's until it has ended, also when the Engine is closed.
func TestCloseWaitsForTheDisk(t *testing.T) {
	tr, err := shm.New(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "lender", Transports: []fabric.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	defer el.Close()
	if _, err := el.Listen("shm://" + filepath.Join(t.TempDir(), "l.sock")); err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(el, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	disk := &slow{}
	c, err := e.NewController(Spec{Lease: 1, Who: "ann", Backing: disk, Range: device.Range{Size: disk.Size()}})
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	o := e.take(&queue{c: c, cq: &window{Window: Window{Segment: c.registers}}}, 1)
	o.req = Request{Op: OpRead, Size: 512, Pieces: [][]byte{make([]byte, 512)}}
	if !e.begin(o) {
		t.Error("the request was not begun")
	}
	e.mu.Unlock()
	quiet := c.Stop()
	ended := make(chan error, 1)
	go func() { ended <- e.Close() }()
	select {
	case err := <-ended:
		t.Fatalf("the engine was closed under a request: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	disk.mu.Lock()
	if disk.closed {
		t.Error("a Starter was closed under a request")
	}
	disk.over = true
	disk.mu.Unlock()
	<-quiet
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if disk.mu.Lock(); !disk.closed {
		t.Error("the Starter was not closed")
	}
	disk.mu.Unlock()
	c.Free()
}
