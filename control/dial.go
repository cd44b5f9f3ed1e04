package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
)

// dialTime bounds one attempt at one address.
const dialTime = 5 * time.Second

// Dial connects to a member at the first of its addresses that answers, and
// checks that it is the one meant. A member without a name may be anybody. The connection to whoever else answers stays: there is one
// to each element, and others may use it.
func (l *Links) Dial(ctx context.Context, m cluster.Member) (*fabric.Endpoint, error) {
	var failed []error
	for _, addr := range l.sorted(m.Addrs) {
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
	scheme, _, err := fabric.SplitAddr(addr)
	if err != nil {
		return err
	}
	if l.cfg.Schemes.Index(scheme) < 0 {
		return fmt.Errorf("%s: transport %s is not in use here", addr, scheme)
	}
	if !l.cfg.Insecure && !l.cfg.Schemes.Loopback(addr) {
		return fmt.Errorf("%s is not a loopback address, and %w: give --tls-cert, --tls-key and --tls-ca, or insist with --insecure on a network that you trust", addr, ErrInsecure)
	}
	return nil
}

// sorted puts addresses of preferred transports first, else keeps the order.
func (l *Links) sorted(addrs []string) []string {
	rank := func(addr string) int {
		scheme, _, _ := strings.Cut(addr, "://")
		return l.cfg.Schemes.Index(scheme)
	}
	return slices.SortedStableFunc(slices.Values(addrs), func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
}
