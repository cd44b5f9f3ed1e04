package faulttest

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/internal/child"
)

// settings describe an element, in this process or in another.
type settings struct {
	Name        string
	Token       string // shown to whom it dials: "cluster", "alice", "bob" or "nobody"
	Engine      bool
	Shared      string // the folder to listen in on shared memory, not TCP
	Instances   int    // wasm.Config.MaxInstances
	MemoryBytes uint64 // wasm.Config.MemoryBytes; no function may have more scratch than a third of it
	Running     int
	CacheBytes  int64
	OutboxBytes int
	WindowBytes int
	Incarnation uint64
	Several     bool // each Dial makes a connection
	PeerTime    time.Duration
	Travel      travel.Limits
	Streams     string // of a child: where it starts a function that streams to it
}

// capsOf are the capabilities of the tokens that there are.
func capsOf(token string) (cluster.Caps, bool) {
	switch token {
	case "cluster":
		return cluster.CapInject | cluster.CapRead | cluster.CapWrite | cluster.CapMember, true
	case "alice", "bob":
		return cluster.CapInject | cluster.CapRead, true
	case "nobody":
		return cluster.CapRead, true
	}
	return 0, false
}

// auth has each element show its token, and knows all of them.
type auth struct{ token string }

func secretOf(token string) []byte { return []byte("the secret of " + token) }

func (a auth) Self() (string, []byte) { return a.token, secretOf(a.token) }

func (auth) Lookup(token string) ([]byte, fabric.Principal, bool) {
	caps, ok := capsOf(token)
	return secretOf(token), fabric.Principal{Name: token, Caps: uint32(caps)}, ok
}

func (auth) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

// element is a fabric element with a runtime, in this process.
type element struct {
	*fabric.Element
	rt     *inject.Runtime
	engine *wasm.Engine
	log    *lines
}

// lines keeps what functions logged.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) add(_, _, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, text)
}

func (l *lines) bytes() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.text {
		n += len(s)
	}
	return n
}

// newElement makes an element. One with an engine listens.
func newElement(s settings) (*element, error) {
	sockets, err := tcp.New(tcp.Config{})
	if err != nil {
		return nil, err
	}
	shared, err := shm.New(shm.Config{})
	if err != nil {
		return nil, err
	}
	e := &element{log: &lines{}}
	e.Element, err = fabric.New(fabric.Config{Name: s.Name, Transports: []fabric.Transport{sockets, shared}, Auth: auth{s.Token}, Several: s.Several,
		Incarnation: fabric.Incarnation(s.Incarnation), Limits: fabric.Limits{OutboxBytes: s.OutboxBytes, WindowBytes: s.WindowBytes, PeerTime: s.PeerTime}})
	if err != nil {
		return nil, err
	}
	cfg := inject.Config{Running: s.Running, CacheBytes: s.CacheBytes, Output: e.log.add, Travel: s.Travel}
	if s.Engine {
		if e.engine, err = wasm.New(wasm.Config{MaxInstances: s.Instances, MemoryBytes: s.MemoryBytes, Ceilings: abi.Limits{ScratchBytes: s.MemoryBytes / 3}}); err != nil {
			return nil, err
		}
		cfg.Engines = []abi.Engine{wasm.Runner{Engine: e.engine}}
	}
	if e.rt, err = inject.NewRuntime(e.Element, cfg); err != nil {
		return nil, err
	}
	if s.Engine {
		addr := "tcp://127.0.0.1:0"
		if s.Shared != "" {
			addr = fmt.Sprintf("shm://%s/%v.sock", s.Shared, e.Incarnation())
		}
		if _, err = e.Listen(addr); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// close ends the element. An instance that still runs then was never released.
func (e *element) close() error {
	err := e.rt.Close()
	if cerr := e.Element.Close(); err == nil {
		err = cerr
	}
	if e.engine != nil {
		if cerr := e.engine.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// report is what an element's tables hold.
type report struct {
	Stats     inject.Stats
	Instances int
}

func (e *element) report() report {
	r := report{Stats: e.rt.Stats()}
	if e.engine != nil {
		r.Instances = e.engine.Stats().Live
	}
	return r
}

// segment lends memory and returns the window that a table has for it.
func (e *element) segment(content []byte, rights fabric.Rights) (cluster.Window, error) {
	seg, err := e.NewSegment(uint64(len(content)), fabric.Writable)
	if err != nil {
		return cluster.Window{}, err
	}
	copy(seg.Bytes(), content)
	key, err := seg.Key(rights)
	return cluster.Window{Key: key, Size: uint64(len(content)), Writable: rights&fabric.RightWrite != 0}, err
}

// childMark is the argument that makes the test binary an element.
const childMark = "faulttest-element"

// childInfo is a child's first line.
type childInfo struct {
	Incarnation uint64
	Addrs       []string
	Error       string
}

// request is a line to a child; zero fields ask for nothing.
type request struct {
	Dial   string
	Lend   []byte
	Rights fabric.Rights
}

type answer struct {
	Key    string
	Report report
	Error  string
}

// childMain is an element's life in a process of its own. It ends with its standard input.
func childMain(arg string) int {
	var s settings
	out := json.NewEncoder(os.Stdout)
	err := json.Unmarshal([]byte(arg), &s)
	var e *element
	if err == nil {
		e, err = newElement(s)
	}
	if err != nil {
		out.Encode(childInfo{Error: err.Error()})
		return 1
	}
	if s.Streams != "" {
		if err := e.stream(s.Streams); err != nil {
			out.Encode(childInfo{Error: err.Error()})
			return 1
		}
	}
	out.Encode(childInfo{Incarnation: uint64(e.Incarnation()), Addrs: e.Addrs()})
	for in := json.NewDecoder(os.Stdin); ; {
		var r request
		if in.Decode(&r) != nil {
			e.close()
			return 0
		}
		var a answer
		if err := e.obey(r, &a); err != nil {
			a.Error = err.Error()
		}
		out.Encode(a)
	}
}

// stream starts a function at an address that sends parts for as long as it may: 3 s.
func (e *element) stream(addr string) error {
	if err := compileGuests(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ep, err := e.Dial(ctx, addr)
	if err != nil {
		return err
	}
	m := image.Manifest{Name: "journey", Limits: abi.Limits{RunTime: time.Minute, ReplyBytes: 64 << 20}}
	img, err := image.Build(m, image.Entry{Form: image.Wasm, Code: guests["journey"]})
	if err != nil {
		return err
	}
	f, err := e.rt.Prepare(img, nil)
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err = f.Start(ctx, []inject.Root{{To: ep, Payload: order(5, 1<<20, 0)}}, inject.Options{})
	return err
}

func (e *element) obey(r request, a *answer) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if r.Dial != "" {
		if _, err := e.Dial(ctx, r.Dial); err != nil {
			return err
		}
	}
	if len(r.Lend) > 0 {
		w, err := e.segment(r.Lend, r.Rights)
		if err != nil {
			return err
		}
		a.Key = hex.EncodeToString(w.Key.Append(nil))
	}
	a.Report = e.report()
	return nil
}

// startChild starts an element in another process.
func startChild(t testing.TB, s settings) (*child.Process, childInfo) {
	t.Helper()
	arg, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$", childMark, string(arg))
	cmd.Stderr = os.Stderr
	c, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.End)
	var info childInfo
	if err := c.Hear(&info); err != nil || info.Error != "" {
		t.Fatalf("element %s did not start: %v %s", s.Name, err, info.Error)
	}
	return c, info
}

func ask(c *child.Process, r request) (answer, error) {
	var a answer
	if err := c.Tell(r); err != nil {
		return a, err
	}
	if err := c.Hear(&a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, fmt.Errorf("the child says: %s", a.Error)
	}
	return a, nil
}
