package faulttest

import (
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// TestLinkIsShared: more of one principal's branches than an element may hold do not stop the link to it for another principal's.
func TestLinkIsShared(t *testing.T) {
	t.Parallel()
	g := newGrid(t, 2, nil, func(s *settings) {
		s.OutboxBytes, s.WindowBytes = 64<<10, 160<<10
		s.Travel = travel.Limits{PrincipalHeldRuns: 200}
		s.Running = 8
	})
	table := g.plain()
	img := guestImage(t, "journey", withLimits(func(l *abi.Limits) { l.Forks, l.RunTime = 1<<16, time.Minute }))
	f := g.prepare(g.client, img, table)
	bob := g.newClient(settings{Name: "bob", Token: "bob"})
	for _, n := range g.nodes {
		g.connect(bob, n)
	}
	hers := g.prepare(bob, img, table)
	const spin = 40 * time.Second // at n1, each of so many branches, so that they are there until the test has ended
	fut, err := f.Start(within(t, spin), []inject.Root{{Element: 0, Payload: order(6, 20000, uint64(spin))}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer fut.Cancel()
	eventually(t, "alice's fork", func() string {
		if g.nodes[0].report(t).Stats.Waits == 0 {
			return "finds room still"
		}
		return ""
	})
	for range 3 {
		if _, err := run(within(t, patience), hers, inject.Root{Element: 0, Payload: order(1, 1, 0)}); err != nil {
			t.Errorf("bob's hop over the same link: %v", err)
		}
	}
	if n := g.nodes[1].report(t).Stats.Sizes; n.HeldRuns == 0 || n.Kept > 0 {
		t.Errorf("%+v: alice's branches should still be here, without their link's credit", n)
	}
}
