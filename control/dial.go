package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// dialTime bounds one attempt at one address.
const dialTime = 5 * time.Second

// Dial connects to a member at the first of its addresses that answers, and
// checks that it is the one meant. A member without a name may be anybody.
func (l *Links) Dial(ctx context.Context, m cluster.Member) (*fabric.Endpoint, error) {
	var failed []error
	for _, addr := range sortAddrs(m.Addrs) {
		if err := l.mayDial(addr); err != nil {
			failed = append(failed, err)
			continue
		}
		one, cancel := context.WithTimeout(ctx, dialTime)
		ep, err := l.cfg.Element.Dial(one, addr)
		cancel()
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if err := l.meant(ep, m, addr); err != nil {
			ep.Close()
			failed = append(failed, err)
			continue
		}
		return ep, nil
	}
	if len(failed) == 0 {
		failed = append(failed, errors.New("it has no address"))
	}
	return nil, errors.Join(failed...)
}

// meant says why an endpoint is not to the member that was dialled.
func (l *Links) meant(ep *fabric.Endpoint, m cluster.Member, addr string) error {
	switch {
	case m.Name != "" && ep.Name() != m.Name:
		return fmt.Errorf("%s is the address of %s, not of %s: correct the list of peers", addr, ep.Name(), m.Name)
	case !l.trusted(ep):
		return fmt.Errorf("%s (%s) is no node: its token or certificate has not the capability member", addr, ep.Name())
	}
	return nil
}

// mayDial says why an address is not tried.
func (l *Links) mayDial(addr string) error {
	scheme, rest, err := fabric.SplitAddr(addr)
	if err != nil {
		return err
	}
	if !slices.Contains(l.cfg.Schemes, scheme) {
		return fmt.Errorf("%s: transport %s is not in use here", addr, scheme)
	}
	if scheme == "shm" && !strings.HasPrefix(rest, "@") {
		if _, err := os.Stat(rest); err != nil {
			return fmt.Errorf("%s: %w", addr, err) // another machine's path, or the node is down
		}
	}
	if !l.cfg.Insecure && !Loopback(addr) {
		return fmt.Errorf("%s is not a loopback address, and %w: give --tls-cert, --tls-key and --tls-ca, or insist with --insecure on a network that you trust", addr, ErrInsecure)
	}
	return nil
}

// sortAddrs puts shared memory first, else keeps the order.
func sortAddrs(addrs []string) []string {
	out := slices.Clone(addrs)
	slices.SortStableFunc(out, func(a, b string) int {
		sa, sb := strings.HasPrefix(a, "shm://"), strings.HasPrefix(b, "shm://")
		switch {
		case sa == sb:
			return 0
		case sa:
			return -1
		}
		return 1
	})
	return out
}

// Loopback reports whether an address cannot be reached from other machines.
func Loopback(addr string) bool {
	scheme, rest, err := fabric.SplitAddr(addr)
	if err != nil {
		return false
	}
	if scheme != "tcp" {
		return scheme == "shm"
	}
	return LoopbackHost(rest)
}

// LoopbackHost is Loopback for host:port.
func LoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
