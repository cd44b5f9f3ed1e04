package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/rpc"
)

const (
	// DefaultConnectTime bounds Connect where its context has no deadline.
	DefaultConnectTime = 15 * time.Second
	// lentBytes bounds the client's own segments: staging memory of loads, and
	// the large requests of calls.
	lentBytes = 256 << 20
	// askTime bounds a small question to one node.
	askTime = 20 * time.Second
)

// Config describes a client. The zero value of a field is its usual value;
// Nodes, and TokenFile, Tokens or TLS, must be given.
type Config struct {
	// Name is shown to nodes; "client-" and the process number if it is "".
	Name string
	// Nodes are whom to connect to. A member without a name may be any node.
	Nodes []cluster.Member
	// Only keeps the client to Nodes; otherwise it connects to their peers too.
	Only bool
	// Node is the one node that the client is for. Once it is connected Connect waits for no other, and the log warns only of nodes whose
	// memory is in use. "": the client is for all nodes.
	Node string
	// Managed: the client is for what managers know. Once one of them is connected Connect waits for other nodes for one more second only.
	Managed bool

	TokenFile string          // mode 0600
	Token     string          // the token to show; "": the file's only one
	Tokens    *cluster.Tokens // instead of TokenFile

	// TLS, if it is on, secures all tcp addresses; the certificate says who the
	// client is there. Then no token is needed, except over shm.
	TLS ca.Settings

	Schemes    fabric.Schemes // transports that addresses can name; nil: schemes.All
	Transports []string       // names of those to use, as "tcp", "shm"; nil: all
	Policy     fabric.Policy
	Insecure   bool // tcp addresses beyond loopback may be dialled without TLS
	Limits     fabric.Limits
	Log        *slog.Logger // nil: silent
}

// Validate fills in defaults and reports what is wrong.
func (c *Config) Validate() error {
	if len(c.Nodes) == 0 {
		return errors.New("client: no node to connect to: give at least one address, as in tcp://127.0.0.1:7000")
	}
	if len(c.Nodes) > cluster.MaxMembers {
		return fmt.Errorf("client: %d nodes, at most %d are allowed", len(c.Nodes), cluster.MaxMembers)
	}
	for _, m := range c.Nodes {
		if m.Name == "" {
			m.Name = "unnamed"
		}
		if err := m.Validate(); err != nil {
			return fmt.Errorf("client: nodes: %w", err)
		}
	}
	if err := c.TLS.Validate(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if c.TokenFile == "" && c.Tokens == nil && !c.TLS.On() {
		return errors.New("client: no token file and no certificate: nodes serve nobody without one of them; ask who runs them")
	}
	if err := c.Limits.Validate(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if c.Schemes == nil {
		c.Schemes = schemes.All()
	}
	used, err := c.used()
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	for _, m := range c.Nodes {
		if !slices.ContainsFunc(m.Addrs, func(addr string) bool { s, _ := used.Of(addr); return s != nil }) {
			return fmt.Errorf("client: nodes: the transport of %s is not in use here, only %s", memberText(m), strings.Join(used.Names(), " and "))
		}
		for _, addr := range m.Addrs {
			if err := c.Schemes.Check(addr); err != nil {
				return fmt.Errorf("client: nodes: %s: %w", memberText(m), err)
			}
		}
	}
	return nil
}

// used are the schemes of the transports in use.
func (c *Config) used() (fabric.Schemes, error) {
	if c.Transports == nil {
		return c.Schemes, nil
	}
	return c.Schemes.Pick(c.Transports...)
}

// Client is connected to nodes; Connect makes one. Its methods may be called from any goroutine. The zero value, and nil,
// is connected to no node: methods that fail do so with an error that says it, and there is no Element, Runtime or RPC.
type Client struct {
	cfg      Config
	log      *slog.Logger
	auth     *control.Auth
	tls      *ca.Identity   // nil without TLS
	schemes  fabric.Schemes // in use
	life     context.Context
	end      context.CancelFunc // of life, by Close
	work     sync.WaitGroup
	el       *fabric.Element
	rpc      *rpc.Peer
	links    *control.Links
	inUse    sync.Map // names of nodes whose memory is, where the client is for one node
	rt       *inject.Runtime
	managers managersKnown
	busy     busyNodes
	closing  sync.Once
	err      error
}

// errUnmade: a Client that Connect did not return.
var errUnmade = errors.New("client: this Client is connected to nobody, because Connect did not make it: use what client.Connect returns")

// check reports a client that Connect did not make.
func (c *Client) check() error {
	if c == nil || c.links == nil {
		return errUnmade
	}
	return nil
}

// Connect makes a client and connects it. It fails if no node can be reached, or
// none that can answers; Nodes tells which others could not.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultConnectTime)
		defer cancel()
	}
	for life := 1; ; life++ {
		c, err := begin(ctx, cfg, life == lives)
		switch {
		case err == nil:
			return c, nil
		case life == lives || !errors.Is(err, fabric.ErrTaken):
			return nil, fmt.Errorf("client: %w", err)
		}
		if cfg.Log != nil {
			cfg.Log.Warn("somebody else has come to a node under this client's incarnation first; connecting with a new incarnation", "err", err)
		}
	}
}

// lives is how often Connect starts anew where another element has shown the client's incarnation first: once is a thief, or
// a very rare coincidence; more than that is an eavesdropper on what the client sends.
const lives = 3

// begin makes a client that has an incarnation of its own, and connects it. Unless it is the last that is made, it fails if any node refuses
// that incarnation.
func begin(ctx context.Context, cfg Config, last bool) (*Client, error) {
	c := &Client{cfg: cfg, log: cfg.Log}
	c.life, c.end = context.WithCancel(context.Background())
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.cfg.Name == "" {
		c.cfg.Name = fmt.Sprintf("client-%d", os.Getpid())
	}
	err := c.build()
	if err == nil {
		err = c.connect(ctx)
	}
	if err == nil && !last {
		err = c.taken()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) build() error {
	var err error
	if c.schemes, err = c.cfg.used(); err != nil {
		return err
	}
	if err = c.identify(); err != nil {
		return err
	}
	transports, err := c.schemes.Open(c.tls.Credentials())
	if err != nil {
		return err
	}
	limits := c.cfg.Limits
	if limits.LentBytes == 0 {
		limits.LentBytes = lentBytes
	}
	c.el, err = fabric.New(fabric.Config{Name: c.cfg.Name, Transports: transports, Policy: c.cfg.Policy, Auth: c.auth,
		Limits: limits, Log: c.log, OnPeer: c.peerUp, OnLost: c.peerLost})
	if err != nil {
		return errors.Join(err, transports.Close())
	}
	if c.rpc, err = rpc.New(c.el, rpc.Config{Log: c.log}); err != nil {
		return err
	}
	if c.rt, err = inject.NewRuntime(c.el, inject.Config{Log: c.log}); err != nil {
		return err
	}
	c.links = control.NewLinks(control.LinksConfig{Element: c.el, Schemes: c.schemes, Insecure: c.cfg.Insecure || c.tls != nil, Log: c.log, Minds: c.minds})
	if c.tls != nil {
		c.work.Go(func() { c.tls.Guard(c.life, transports.Recheck) })
	}
	return nil
}

// peerUp hears of each new endpoint.
func (c *Client) peerUp(ep *fabric.Endpoint) {
	c.links.PeerUp(ep)
}

// peerLost hears of each endpoint's end.
func (c *Client) peerLost(ep *fabric.Endpoint, err error) {
	c.links.PeerLost(ep, err)
}

func (c *Client) info(ctx context.Context, ep *fabric.Endpoint) (*control.Info, error) {
	info, err := ask[control.Info](ctx, c, ep, control.CallInfo, control.InfoRequest{Version: control.Version})
	if err == nil && info.Version < 1 {
		err = fmt.Errorf("node %s speaks version %d of the control protocol, this program %d: upgrade the older one", ep.Name(), info.Version, control.Version)
	}
	return info, err
}

// Element is the client's element, for what is built on it.
func (c *Client) Element() *fabric.Element {
	if c.check() != nil {
		return nil
	}
	return c.el
}

// Runtime starts functions; it runs none.
func (c *Client) Runtime() *inject.Runtime {
	if c.check() != nil {
		return nil
	}
	return c.rt
}

// RPC is the client's part in calls.
func (c *Client) RPC() *rpc.Peer {
	if c.check() != nil {
		return nil
	}
	return c.rpc
}

// Principal is who the client is: to all nodes by its certificate, or to those
// that have its token with the same capabilities.
func (c *Client) Principal() cluster.Principal {
	if c.check() != nil {
		return cluster.Principal{}
	}
	return c.auth.Principal()
}

// Nodes are the nodes that the client knows, and how things stand with each.
func (c *Client) Nodes() []control.LinkState {
	if c.check() != nil {
		return nil
	}
	return c.links.States()
}

// Endpoint waits for the connection to a node, and for one that is down to come back.
func (c *Client) Endpoint(ctx context.Context, node string) (*fabric.Endpoint, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTime)
		defer cancel()
	}
	return c.links.Wait(ctx, node)
}

// Reach is Endpoint that fails as soon as it is known that the node cannot be connected to.
func (c *Client) Reach(ctx context.Context, node string) (*fabric.Endpoint, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ep, err := c.links.Try(ctx, node)
	if errors.Is(err, control.ErrNoNode) && c.hasty() { // a node that Connect did not wait for may know it
		c.widen(ctx, nil, 0)
		ep, err = c.links.Try(ctx, node)
	}
	return ep, err
}

// Info asks one node about itself.
func (c *Client) Info(ctx context.Context, node string) (*control.Info, error) {
	ep, err := c.Reach(ctx, node)
	if err != nil {
		return nil, err
	}
	return c.info(ctx, ep)
}

// Status asks one node what goes on there. It takes the capability read; with
// admin the answer names all endpoints, else the nodes' and this client's.
func (c *Client) Status(ctx context.Context, node string) (*control.Status, error) {
	ep, err := c.Reach(ctx, node)
	if err != nil {
		return nil, err
	}
	return ask[control.Status](ctx, c, ep, control.CallStatus, control.StatusRequest{Version: control.Version})
}

// Explain asks one node in which form a function runs there that was started with a wish for it. It takes the capability inject.
func (c *Client) Explain(ctx context.Context, node string, id image.ID, form forms.Wish) (*control.Explanation, error) {
	ep, err := c.Reach(ctx, node)
	if err != nil {
		return nil, err
	}
	return ask[control.Explanation](ctx, c, ep, control.CallExplain, control.ExplainRequest{ID: id.String(), Form: form.String()})
}

// connected are the endpoints that are up, by name of their node.
func (c *Client) connected() []*fabric.Endpoint {
	var out []*fabric.Endpoint
	for _, s := range c.links.States() {
		if s.Endpoint != nil {
			out = append(out, s.Endpoint)
		}
	}
	return out
}

// Pause tells all nodes that this process is about to stand still for up to d, and is not lost: what it holds at them stays held. 0: it goes on. A node waits
// for fabric.MaxPause at most.
func (c *Client) Pause(d time.Duration) {
	if c != nil && c.el != nil {
		c.el.Pause(d)
	}
}

// Close ends all connections.
func (c *Client) Close() error {
	if c == nil || c.end == nil {
		return nil
	}
	c.closing.Do(func() {
		c.end()
		var errs []error
		if c.links != nil {
			c.links.Close()
		}
		if c.rpc != nil {
			errs = append(errs, c.rpc.Close())
		}
		if c.el != nil {
			errs = append(errs, c.el.Close())
		}
		if c.rt != nil {
			errs = append(errs, c.rt.Close())
		}
		c.work.Wait()
		c.err = errors.Join(errs...)
	})
	return c.err
}
