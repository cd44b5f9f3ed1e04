package node

import (
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool/component"
)

// TestPast: how long a version is kept for a reader that stays connected, how many, and that a withdrawn token ends it.
func TestPast(t *testing.T) {
	ts := tokens(t, cluster.CapMember, "user")
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts})
	el, _ := guest(t, ts, "user")
	ep, err := el.Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	account := component.NewAccount(component.Bounds{Bytes: 1 << 30})
	s := newStore(el, account)
	version := func(keys int) *shard {
		seg, err := el.NewSegment(fabric.SegmentAlign, fabric.Sealed)
		if err != nil {
			t.Fatal(err)
		}
		sh := &shard{name: "d", windows: []window{{seg: seg, size: 1}}}
		sh.charge.Bytes, sh.charge.Files = fabric.SegmentAlign, 1
		if err := account.Reserve(sh.charge); err != nil {
			t.Fatal(err)
		}
		k, err := seg.Key(fabric.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		g := &given{who: cluster.Principal{Name: "ann"}, keys: map[fabric.Rights][]fabric.Key{fabric.RightRead: make([]fabric.Key, keys)}, readers: map[*fabric.Endpoint]int{ep: 1}}
		g.keys[fabric.RightRead][0] = k
		sh.given = map[string]*given{"ann": g}
		return sh
	}
	holds := func(sh *shard) bool {
		return sh.given["ann"] != nil && el.Holds(sh.given["ann"].keys[fabric.RightRead][0])
	}
	keep := func(sh *shard) { s.past.free(s.past.keep(sh, time.Time{})...) }

	a, b := version(1), version(1)
	keep(a)
	s.past.expire(time.Time{}.Add(pastTime - 1))
	if all, _, _ := account.Used(); !holds(a) || all.Files != 2 || s.past.bytes("d") != fabric.SegmentAlign || s.past.bytes("e") != 0 {
		t.Errorf("before its time: %v", all)
	}
	s.past.expire(time.Time{}.Add(pastTime))
	if all, _, _ := account.Used(); holds(a) || all.Files != 1 {
		t.Errorf("after its time: %v", all)
	}
	keep(b)
	key := b.given["ann"].keys[fabric.RightRead][0]
	if s.takeBack([]string{"eve"}); !holds(b) {
		t.Error("somebody else's token was withdrawn")
	}
	if s.takeBack([]string{"ann"}); el.Holds(key) {
		t.Error("the token was withdrawn")
	}
	s.past.expire(time.Time{})
	c, d := version(maxPastKeys/2), version(maxPastKeys/2)
	keep(c)
	keep(d)
	if all, _, _ := account.Used(); holds(c) || !holds(d) || all.Files != 1 || s.past.keys != maxPastKeys/2+1 {
		t.Errorf("%v and %d keys for more than are kept", all, s.past.keys)
	}
	s.past.free(s.past.take(func(*shard) bool { return true })...)
	if all, _, _ := account.Used(); all != (component.Lent{}) || s.past.keys != 0 || s.past.lent != all {
		t.Errorf("%v and %d keys are left", all, s.past.keys)
	}
}
