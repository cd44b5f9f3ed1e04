package fabric

import (
	"fmt"
	"log/slog"
	"time"
)

// Policy says how a goroutine waits for the fabric.
type Policy uint8

const (
	// Balanced polls for a few tens of microseconds, then sleeps. The default.
	Balanced Policy = iota
	// Latency polls all the time: one core is spent for the fastest answer.
	Latency
	// Efficient sleeps at once.
	Efficient
)

var policyNames = [...]string{"balanced", "latency", "efficient"}

func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// ParsePolicy reads a policy's name.
func ParsePolicy(s string) (Policy, error) {
	for i, n := range policyNames {
		if s == n {
			return Policy(i), nil
		}
	}
	return 0, fmt.Errorf("fabric: no wake-up policy %q: it is balanced, latency or efficient", s)
}

// spin is how long a waiter polls before it sleeps: a wake-up across cores
// costs 20 to 30 µs, so polling for less than twice that wastes little.
func (p Policy) spin() time.Duration {
	switch p {
	case Latency:
		return 1 << 62
	case Efficient:
		return 0
	}
	return 50 * time.Microsecond
}

// Limits bound everything in an element that can grow. A zero field means its
// default.
type Limits struct {
	Endpoints int // connections at once; default 4096
	// EndpointsPerPrincipal is how many of them peers of one principal may have opened. Default: where Auth tells
	// principals apart, all but an eighth of Endpoints, so that no principal can take every place; else all.
	EndpointsPerPrincipal int
	WindowBytes           int // unreleased normal messages taken from one peer; default 1 MiB
	OpsPerEndpoint        int // one-sided operations at once per endpoint and direction; default 1024
	OutboxBytes           int // messages posted to one peer and waiting for credit; default 1 MiB
	// OutboxBytesInAll bounds what waits so for all peers together. Beyond it a message is queued for a peer only if
	// none waits for that one yet. Default 256 MiB, or OutboxBytes if that is more.
	OutboxBytesInAll int
	KeysPerPeer      int // keys that one peer has narrowed, until they are revoked or it is lost; default 4096
	ReservedBytes    int // replies waiting for a peer that does not read; default 8 MiB
	// ReservedBytesInAll bounds what waits so for all peers together. Beyond it, of the principal for whom most
	// waits, the endpoint with most is ended. Default 256 MiB, or ReservedBytes if that is more. The process may
	// take up to three times as much for it, until the collector has been there.
	ReservedBytesInAll int

	SegmentBytes uint64 // one segment; default 1 TiB
	LentBytes    int64  // all segments together; default 1 TiB
	// MappedBytes bounds the addresses that peers' segments take here, sparse or not; one endpoint's at most a quarter of it. What is beyond
	// is not mapped: its owner serves it. Default 32 TiB, of the 128 that a process has on most machines.
	MappedBytes int64
	HelloTime   time.Duration // HELLO's deadline; default 5 s
	OpTime      time.Duration // deadline of an operation whose context has none; default 30 s
	PeerTime    time.Duration // a peer silent for so long is lost; default 15 s
}

// inAllBytes is what may wait for all peers together: what rpc lets answers wait in, too.
const inAllBytes = 256 << 20

func (l *Limits) defaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&l.Endpoints, 4096)
	def(&l.WindowBytes, 1<<20)
	def(&l.OpsPerEndpoint, 1024)
	def(&l.OutboxBytes, 1<<20)
	def(&l.KeysPerPeer, 4096)
	def(&l.ReservedBytes, 8<<20)
	def(&l.OutboxBytesInAll, max(inAllBytes, l.OutboxBytes))
	def(&l.ReservedBytesInAll, max(inAllBytes, l.ReservedBytes))
	if l.SegmentBytes == 0 {
		l.SegmentBytes = 1 << 40
	}
	if l.LentBytes == 0 {
		l.LentBytes = 1 << 40
	}
	if l.MappedBytes == 0 {
		l.MappedBytes = 32 << 40
	}
	for p, v := range map[*time.Duration]time.Duration{&l.HelloTime: 5 * time.Second, &l.OpTime: 30 * time.Second, &l.PeerTime: 15 * time.Second} {
		if *p == 0 {
			*p = v
		}
		*p = min(*p, longest)
	}
}

// longest bounds every time: what is longer is for ever, and sums of two stay in range.
const longest = time.Duration(1 << 61)

// defaultPrincipal fills in what depends on whether principals are told apart.
func (l *Limits) defaultPrincipal(apart bool) {
	if l.EndpointsPerPrincipal == 0 {
		l.EndpointsPerPrincipal = l.Endpoints
		if apart {
			l.EndpointsPerPrincipal -= l.Endpoints / 8
		}
	}
}

// validateShares looks at what one may have of what is there for all.
func (l *Limits) validateShares() error {
	if l.Endpoints < 1 {
		return fmt.Errorf("fabric: Endpoints %d: at least 1", l.Endpoints)
	}
	if n := l.EndpointsPerPrincipal; n < 0 || n > l.Endpoints {
		return fmt.Errorf("fabric: EndpointsPerPrincipal %d: between 1 and Endpoints, which is %d, or 0 for the default", n, l.Endpoints)
	}
	for _, s := range []struct {
		name     string
		one, all int
	}{{"OutboxBytes", l.OutboxBytes, l.OutboxBytesInAll}, {"ReservedBytes", l.ReservedBytes, l.ReservedBytesInAll}} {
		if s.one < 0 {
			return fmt.Errorf("fabric: %s %d: it cannot be negative", s.name, s.one)
		}
		if s.all < s.one {
			return fmt.Errorf("fabric: %sInAll %d: at least %s, which is %d", s.name, s.all, s.name, s.one)
		}
	}
	return nil
}

func (l *Limits) validateTimes() error {
	if l.HelloTime < 0 || l.OpTime < 0 || l.PeerTime < 0 {
		return fmt.Errorf("fabric: HelloTime %v, OpTime %v, PeerTime %v: none can be negative", l.HelloTime, l.OpTime, l.PeerTime)
	}
	if l.LentBytes < 0 {
		return fmt.Errorf("fabric: LentBytes %d: it cannot be negative", l.LentBytes)
	}
	return nil
}

// Validate reports what is wrong with limits.
func (l Limits) Validate() error {
	return (&Config{Limits: l}).Validate()
}

// Config describes an element. The zero value of each field but Transports is usable.
type Config struct {
	Name       string      // for people; shown to peers
	Transports []Transport // how peers are reached; the element closes them
	Policy     Policy
	Auth       Auth // nil: anybody may connect, as "anonymous"
	Limits     Limits
	Log        *slog.Logger // nil: silent
	// Manual leaves progress to the caller (Element.Progress): no goroutine is
	// started. With Now, a simulator can run an element on its own clock.
	Manual bool
	Now    func() int64 // monotonic nanoseconds; nil: the machine's
	// Scheduler, with Manual and Now, has a simulator run goroutines and timers too. nil: the runtime does.
	Scheduler Scheduler
	// Incarnation fixes the random incarnation, for simulations. 0: random.
	Incarnation Incarnation
	// Several makes a connection of each Dial of this element, also to a peer that is connected already: for those
	// who put load on a peer.
	Several bool
	// OnPeer hears of each new endpoint, accepted or dialled, before any of its
	// messages is handled. It must not block.
	OnPeer func(*Endpoint)
	// OnLost hears once of each endpoint's end, after OnPeer has returned. It must not block.
	OnLost func(*Endpoint, error)
}

// Validate reports what is wrong with a configuration.
func (c *Config) Validate() error {
	if len(c.Name) > maxNameBytes {
		return fmt.Errorf("fabric: name of %d bytes: at most %d", len(c.Name), maxNameBytes)
	}
	l := c.Limits
	l.defaults()
	if l.WindowBytes < 2*MaxFrameBytes || l.WindowBytes > 1<<30 {
		return fmt.Errorf("fabric: WindowBytes %d: between %d and 1 GiB", l.WindowBytes, 2*MaxFrameBytes)
	}
	if l.OpsPerEndpoint < 1 || l.OpsPerEndpoint > maxOps {
		return fmt.Errorf("fabric: OpsPerEndpoint %d: between 1 and %d", l.OpsPerEndpoint, maxOps)
	}
	if l.KeysPerPeer < 1 || l.KeysPerPeer > maxKeys {
		return fmt.Errorf("fabric: KeysPerPeer %d: between 1 and %d", l.KeysPerPeer, maxKeys)
	}
	if l.MappedBytes < 0 {
		return fmt.Errorf("fabric: MappedBytes %d: at least 0, which stands for the default", l.MappedBytes)
	}
	if err := l.validateShares(); err != nil {
		return err
	}
	if err := l.validateTimes(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, t := range c.Transports {
		if seen[t.Scheme()] {
			return fmt.Errorf("fabric: two transports for %q", t.Scheme())
		}
		seen[t.Scheme()] = true
	}
	return nil
}
