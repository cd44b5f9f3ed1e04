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
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// defaultPatience is how long nodes that do not answer are waited for where the context has no deadline.
	defaultPatience = 2 * time.Second
	// sayAfter is when it is said that they are waited for.
	sayAfter = 2 * time.Second
	// grace is how long other nodes are waited for once a manager is connected, by a client that is for what managers know.
	grace = time.Second
	// lookTime is how often it is looked who has answered.
	lookTime = 2 * time.Millisecond
)

// patience is how long nodes that do not answer are waited for once others have answered: what they hold is then reported as
// out of reach, and they are dialled on. It is a quarter of what time there is, for the rest is for the work that the
// client was made for; but no more than the time after which a silent peer is lost.
func (c *Client) patience(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return min(c.el.Limits().PeerTime, time.Until(at)/4)
	}
	return defaultPatience
}

// waits says, unless it is called off before, that nodes are waited for, so that the user knows why there is no answer yet.
func (c *Client) waits(most time.Duration) (off func() bool) {
	return time.AfterFunc(sayAfter, func() {
		c.log.Warn("waiting for nodes that do not answer", "at most", most.Round(100*time.Millisecond))
	}).Stop
}

// ErrNoAnswer is why a node was waited for no longer. It may be there, and slow.
var ErrNoAnswer = errors.New("no answer, while others have given one")

// errNotNeeded is why a node was waited for no longer once the one that the client is for was connected.
var errNotNeeded = errors.New("the node that was asked for is connected")

// hasty reports whether the client does not need all nodes.
func (c *Client) hasty() bool { return c.cfg.Node != "" || c.cfg.Managed }

// enough reports whether a hasty client has what it is for.
func (c *Client) enough() bool {
	if c.cfg.Node != "" {
		return c.up(c.cfg.Node)
	}
	c.managers.mu.Lock()
	names := c.managers.names
	c.managers.mu.Unlock()
	return c.cfg.Managed && slices.ContainsFunc(names, c.up)
}

// more is how long a hasty client waits for others then.
func (c *Client) more() time.Duration {
	if c.cfg.Node != "" {
		return 0
	}
	return grace
}

func (c *Client) up(node string) bool { return c.links.Endpoint(node) != nil }

// minds reports whether a node that cannot be reached is worth a warning.
func (c *Client) minds(node string) bool {
	_, used := c.inUse.Load(node)
	return used || c.cfg.Node == "" || c.cfg.Node == node
}

// level is that of what the log says of it.
func (c *Client) level(node string) slog.Level {
	if c.minds(node) {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// reached is the outcome of dialling one of the given nodes.
type reached struct {
	i   int
	ep  *fabric.Endpoint
	err error
}

// connect dials the given nodes at once, then learns of their peers.
func (c *Client) connect(ctx context.Context) error {
	failed, err := c.dialGiven(ctx)
	if err != nil {
		return err
	}
	if len(failed) == len(c.cfg.Nodes) {
		return fmt.Errorf("%w to any node: %w", control.ErrNotConnected, errors.Join(failed...))
	}
	return c.discover(ctx, c.enough, c.more())
}

// widen connects a hasty client to nodes that Connect did not wait for, as settle does. It reports whether there are more now.
func (c *Client) widen(ctx context.Context, enough func() bool, more time.Duration) bool {
	before := len(c.connected())
	c.settle(ctx, enough, more)
	if err := c.discover(ctx, enough, more); err != nil {
		c.log.Debug("no node says who its peers are", "err", err)
	}
	return len(c.connected()) > before
}

// taken is a node's refusal of the client's incarnation. As long as nothing is under way it is not too late to start anew.
func (c *Client) taken() error {
	for _, s := range c.links.States() {
		if s.Endpoint == nil && errors.Is(s.Err, fabric.ErrTaken) {
			return s.Err
		}
	}
	return nil
}

// dialGiven dials the given nodes and says why some could not be reached. The
// error is what trying again would not change.
func (c *Client) dialGiven(ctx context.Context) (failed []error, err error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	dial, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	results := make(chan reached)
	for i, m := range c.cfg.Nodes {
		go func() {
			ep, err := c.reach(dial, m)
			results <- reached{i, ep, err}
		}()
	}
	var look <-chan time.Time
	if c.hasty() {
		ticker := time.NewTicker(lookTime)
		defer ticker.Stop()
		look = ticker.C
	}
	all := make([]reached, len(c.cfg.Nodes))
	var late <-chan time.Time
	off := func() bool { return true }
	defer func() { off() }()
	for left := len(all); left > 0; {
		select {
		case r := <-results:
			left--
			if all[r.i] = r; r.err == nil && late == nil {
				most := c.patience(ctx)
				timer := time.NewTimer(most)
				defer timer.Stop()
				late, off = timer.C, c.waits(most)
			}
			if r.err == nil && c.hasty() && !c.cfg.Only { // it may know the node that the client is for, and managers
				asking.Go(func() { c.learn(dial, []control.LinkState{{Endpoint: r.ep}}) })
			}
		case <-look:
			if !c.enough() {
				continue
			}
			look = nil
			if c.cfg.Node != "" {
				giveUp(errNotNeeded)
			} else {
				timer := time.NewTimer(grace)
				defer timer.Stop()
				late = timer.C
			}
		case <-late:
			giveUp(ErrNoAnswer)
			late = make(chan time.Time) // once is enough
		}
	}
	return c.judge(ctx, all, context.Cause(dial))
}

// judge says which of the given nodes failed. over is why the rest were waited for no longer, if they were not.
func (c *Client) judge(ctx context.Context, all []reached, over error) (failed []error, err error) {
	names := map[string]reached{}
	for i, r := range all {
		m := c.cfg.Nodes[i]
		if r.err != nil {
			if over != nil && errors.Is(r.err, context.Canceled) {
				if over == errNotNeeded {
					continue
				}
				r.err = over
			}
			r.err = fmt.Errorf("%s: %w", memberText(m), r.err)
			failed = append(failed, r.err)
			if errors.Is(r.err, fabric.ErrRefused) {
				return failed, errors.Join(failed...)
			}
			c.log.Log(ctx, c.level(m.Name), "node cannot be reached", "node", memberText(m), "err", r.err)
			continue
		}
		other, twice := names[r.ep.Name()]
		if twice && other.ep.Incarnation() != r.ep.Incarnation() {
			return failed, fmt.Errorf("%w: %s and %s are two nodes, and both are called %q: give each a name of its own", cluster.ErrName,
				strings.Join(c.cfg.Nodes[other.i].Addrs, ", "), strings.Join(m.Addrs, ", "), r.ep.Name())
		}
		names[r.ep.Name()] = r
	}
	return failed, nil
}

func memberText(m cluster.Member) string {
	if m.Name == "" {
		return strings.Join(m.Addrs, ", ")
	}
	return fmt.Sprintf("node %s (%s)", m.Name, strings.Join(m.Addrs, ", "))
}

// reach connects to one node and keeps the connection from then on. A node that is silent is dialled again as long as silent ones
// are waited for: an attempt takes no more than a few seconds.
func (c *Client) reach(ctx context.Context, m cluster.Member) (*fabric.Endpoint, error) {
	until := time.Now().Add(c.patience(ctx))
	ep, err := c.links.Dial(ctx, m)
	for silent(err) && ctx.Err() == nil && time.Now().Before(until) {
		ep, err = c.links.Dial(ctx, m)
	}
	if m.Name == "" && err == nil {
		m.Name = ep.Name()
	}
	if m.Name != "" {
		c.links.Add(m)
	}
	return ep, err
}

// discover asks all connected nodes for their peers and connects to those, as
// long as that brings new ones; enough and more are settle's. It fails if none of them answers.
func (c *Client) discover(ctx context.Context, enough func() bool, more time.Duration) error {
	if c.cfg.Only {
		return nil
	}
	asked := map[string]bool{}
	var failed []error
	answers := 0
	for {
		var fresh []control.LinkState
		for _, s := range c.links.States() {
			if s.Endpoint != nil && !asked[s.Member.Name] {
				asked[s.Member.Name] = true
				fresh = append(fresh, s)
			}
		}
		if len(fresh) == 0 {
			break
		}
		before := len(c.links.States())
		for _, err := range c.learn(ctx, fresh) {
			if err != nil {
				failed = append(failed, err)
				c.log.Warn("a node does not say who its peers are", "err", err)
				continue
			}
			answers++
		}
		if len(c.links.States()) > before {
			c.settle(ctx, enough, more)
		}
	}
	if answers == 0 {
		return errors.Join(failed...)
	}
	return nil
}

// learn asks some nodes at once for their peers.
func (c *Client) learn(ctx context.Context, nodes []control.LinkState) []error {
	if most := c.patience(ctx); len(nodes) > 1 { // one alone may take all the time there is
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most)
		defer cancel()
		defer c.waits(most)()
	}
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, s := range nodes {
		wg.Go(func() {
			info, err := c.info(ctx, s.Endpoint)
			if errs[i] = err; err != nil {
				return
			}
			c.managers.heardOf(info.Managers)
			for _, p := range info.Peers {
				c.links.Add(cluster.Member{Name: p.Name, Addrs: p.Addrs})
			}
		})
	}
	wg.Wait()
	return errs
}

// silent reports whether a node was dialled and did not answer in time: it may be there, and slow.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// settle waits until every member is connected, or was tried once and not just silent, but not for long: one that
// does not answer must not take the time of those that do. Once enough reports true it waits for the others for more; nil: it never does.
func (c *Client) settle(ctx context.Context, enough func() bool, more time.Duration) {
	most := c.patience(ctx)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer c.waits(most)()
	var over <-chan time.Time
	for {
		var waiting []string
		for _, s := range c.links.States() {
			if s.Endpoint == nil && (s.Tries == 0 || silent(s.Err)) {
				waiting = append(waiting, memberText(s.Member))
			}
		}
		if len(waiting) == 0 {
			return
		}
		if over == nil && enough != nil && enough() {
			if more == 0 {
				return
			}
			timer := time.NewTimer(more)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-over:
		case <-ctx.Done():
		case <-time.After(lookTime):
			continue
		}
		c.log.Warn("nodes do not answer", "waited for", strings.Join(waiting, ", "))
		return
	}
}
