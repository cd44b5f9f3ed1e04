// Package storetest is the conformance suite of cluster.Store. A store, also one from outside this tree, passes if Run
// does.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wherry-fabric/wherry/cluster"
)

// Rig is a store to be tested, and what the suite needs besides.
type Rig struct {
	Store cluster.Store // empty
	// Lease is a time for which the store can give a lease, and Pass lets so much time pass that leases, begun or renewed
	// that long ago, have ended: a store with a clock of its own waits.
	Lease time.Duration
	Pass  func(time.Duration)
}

// patience bounds every wait of the suite: no test comes near it unless something hangs.
const patience = time.Minute

// Run checks a store; make makes a new one for each test.
func Run(t *testing.T, make func(t *testing.T) Rig) {
	for name, check := range map[string]func(*run){
		"get": (*run).get, "transaction": (*run).transaction, "limits": (*run).limits, "counting together": (*run).counting,
		"watch": (*run).watch, "watch waits": (*run).watchWaits, "watch ends": (*run).watchEnds, "lease": (*run).lease, "lease ended": (*run).leaseEnded,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			check(&run{t, make(t), ctx})
		})
	}
}

type run struct {
	*testing.T
	Rig
	ctx context.Context
}

func pairs(list ...string) (out []cluster.Pair) {
	for i := 0; i < len(list); i += 2 {
		out = append(out, cluster.Pair{Key: list[i], Value: []byte(list[i+1])})
	}
	return out
}

// commit makes a transaction that must succeed.
func (r *run) commit(t cluster.Txn) cluster.Revision {
	r.Helper()
	rev, err := r.Store.Commit(r.ctx, t)
	if err != nil {
		r.Fatal(err)
	}
	return rev
}

func (r *run) put(list ...string) cluster.Revision {
	r.Helper()
	return r.commit(cluster.Txn{Put: pairs(list...)})
}

// refused makes one that must not.
func (r *run) refused(t cluster.Txn, want error) {
	r.Helper()
	if _, err := r.Store.Commit(r.ctx, t); !errors.Is(err, want) {
		r.Errorf("%+v: %v, want %v", t, err, want)
	}
}

// has says what must be there, as keys and values.
func (r *run) has(prefix string, want ...string) (list []cluster.Pair, rev cluster.Revision) {
	r.Helper()
	list, rev, err := r.Store.Get(r.ctx, prefix)
	if err != nil {
		r.Fatal(err)
	}
	r.same(list, pairs(want...), "Changed", "Lease")
	for _, p := range list {
		if p.Changed == 0 || p.Changed > rev || p.Removed {
			r.Errorf("%+v at revision %d", p, rev)
		}
	}
	return list, rev
}

func (r *run) same(got, want []cluster.Pair, except ...string) {
	r.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(cluster.Pair{}, except...), cmpopts.EquateEmpty()); diff != "" {
		r.Error(diff)
	}
}

func (r *run) get() {
	_, begin := r.has("")
	first := r.put("b/2", "x", "b/1", "y", "a", "")
	second := r.put("b/1", "z", "c", "w")
	if begin >= first || first >= second {
		r.Errorf("revisions %d, %d, %d", begin, first, second)
	}
	list, rev := r.has("b/", "b/1", "z", "b/2", "x")
	if rev != second || list[0].Changed != second || list[1].Changed != first {
		r.Errorf("%+v at revision %d, put at %d and %d", list, rev, first, second)
	}
	r.has("", "a", "", "b/1", "z", "b/2", "x", "c", "w")
	r.has("b/3")
}

func (r *run) transaction() {
	first := r.put("a", "1", "b", "1")
	second := r.commit(cluster.Txn{If: map[string]cluster.Revision{"a": first, "c": 0}, Put: pairs("a", "2", "c", "2"), Remove: []string{"b"}})
	r.has("", "a", "2", "c", "2")
	for _, cond := range []map[string]cluster.Revision{{"a": first}, {"a": 0}, {"b": first}, {"a": second, "c": first}} {
		r.refused(cluster.Txn{If: cond, Put: pairs("a", "3", "d", "3"), Remove: []string{"c"}}, cluster.ErrConflict)
	}
	if _, rev := r.has("", "a", "2", "c", "2"); rev != second {
		r.Errorf("refused transactions changed the revision from %d to %d", second, rev)
	}
	if rev := r.commit(cluster.Txn{If: map[string]cluster.Revision{"b": 0}, Remove: []string{"b"}}); rev != second {
		r.Errorf("nothing was removed at revision %d", rev)
	}
	r.commit(cluster.Txn{Remove: []string{"a", "c"}})
	r.has("")
}

func (r *run) limits() {
	most, more := cluster.Txn{If: map[string]cluster.Revision{}}, cluster.Txn{}
	for i := range cluster.MaxTxn {
		key := fmt.Sprintf("k%03d", i)
		most.If[key], most.Put = 0, append(most.Put, pairs(key, "v")...)
	}
	more.Put = append(most.Put, pairs("one more", "v")...)
	r.refused(more, cluster.ErrTxn)
	r.refused(cluster.Txn{Put: pairs("a", "1", "a", "2")}, cluster.ErrTxn)
	r.refused(cluster.Txn{Put: pairs("a", "1"), Remove: []string{"a"}}, cluster.ErrTxn)
	r.refused(cluster.Txn{Put: pairs("", "1")}, cluster.ErrTxn)
	r.has("")
	r.commit(most)
}

// counting: of several goroutines that compare and put at once one succeeds each time.
func (r *run) counting() {
	const counters, each = 4, 10
	var all sync.WaitGroup
	for range counters {
		all.Go(func() {
			for range each {
				for {
					n, cond := 0, cluster.Revision(0)
					list, _, err := r.Store.Get(r.ctx, "n")
					if err == nil && len(list) == 1 {
						cond = list[0].Changed
						n, err = strconv.Atoi(string(list[0].Value))
					}
					if err == nil {
						_, err = r.Store.Commit(r.ctx, cluster.Txn{If: map[string]cluster.Revision{"n": cond}, Put: pairs("n", strconv.Itoa(n+1))})
					}
					if err == nil {
						break
					}
					if !errors.Is(err, cluster.ErrConflict) {
						r.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	r.has("", "n", strconv.Itoa(counters*each))
}

// changes gathers those after a revision, up to another.
func (r *run) changes(prefix string, after, upTo cluster.Revision) (all []cluster.Pair) {
	r.Helper()
	for after < upTo {
		list, at, err := r.Store.Watch(r.ctx, prefix, after)
		if err != nil {
			r.Fatal(err)
		}
		if at <= after || len(list) == 0 || list[0].Changed <= after || list[len(list)-1].Changed > at {
			r.Fatalf("after %d up to %d: %+v", after, at, list)
		}
		all, after = append(all, list...), at
	}
	return all
}

func (r *run) watch() {
	begin := r.put("a/1", "before")
	first := r.put("a/1", "x", "b", "y")
	second := r.commit(cluster.Txn{Put: pairs("a/2", "z"), Remove: []string{"b"}})
	third := r.commit(cluster.Txn{Remove: []string{"a/1"}})
	r.same(r.changes("a/", begin, third), []cluster.Pair{
		{Key: "a/1", Value: []byte("x"), Changed: first}, {Key: "a/2", Value: []byte("z"), Changed: second}, {Key: "a/1", Changed: third, Removed: true}})
	r.same(r.changes("a/", second, third), []cluster.Pair{{Key: "a/1", Changed: third, Removed: true}})
	r.same(r.changes("b", begin, second), []cluster.Pair{{Key: "b", Value: []byte("y"), Changed: first}, {Key: "b", Changed: second, Removed: true}})
}

// watchWaits: a watcher that waits hears of its keys, whatever is put elsewhere.
func (r *run) watchWaits() {
	begin := r.put("x", "1")
	type heard struct {
		list []cluster.Pair
		err  error
	}
	ears := make(chan heard, 2)
	for range cap(ears) {
		go func() {
			list, _, err := r.Store.Watch(r.ctx, "a/", begin)
			ears <- heard{list, err}
		}()
	}
	for range 3 {
		r.put("b", "elsewhere")
	}
	rev := r.put("a/1", "here")
	for range cap(ears) {
		h := <-ears
		if h.err != nil {
			r.Fatal(h.err)
		}
		r.same(h.list, []cluster.Pair{{Key: "a/1", Value: []byte("here"), Changed: rev}})
	}
}

func (r *run) watchEnds() {
	begin := r.put("x", "1")
	ctx, cancel := context.WithCancel(r.ctx)
	end := make(chan error)
	go func() {
		_, _, err := r.Store.Watch(ctx, "a/", begin)
		end <- err
	}()
	cancel()
	if err := <-end; !errors.Is(err, context.Canceled) {
		r.Error(err)
	}
}

// held puts a key under a new lease.
func (r *run) held(key string) cluster.Lease {
	r.Helper()
	l, err := r.Store.Lease(r.ctx, r.Rig.Lease)
	if err != nil || l == 0 {
		r.Fatal(l, err)
	}
	r.commit(cluster.Txn{Put: []cluster.Pair{{Key: key, Value: []byte("v"), Lease: l}}})
	return l
}

// lease: keys are removed at a lease's end, and not before. Watchers are told.
func (r *run) lease() {
	kept, lost := r.held("kept"), r.held("lost")
	r.commit(cluster.Txn{Put: []cluster.Pair{{Key: "lost too", Value: []byte("v"), Lease: lost}}})
	r.commit(cluster.Txn{Put: []cluster.Pair{{Key: "freed", Value: []byte("v"), Lease: lost}}})
	list, rev := r.has("lost", "lost", "v", "lost too", "v")
	if list[0].Lease != lost || list[1].Lease != lost {
		r.Errorf("%+v, want the lease %d", list, lost)
	}
	rev = max(rev, r.put("freed", "of it"))
	for range 3 {
		r.Pass(r.Rig.Lease / 2)
		if err := r.Store.Renew(r.ctx, kept); err != nil {
			r.Fatal(err)
		}
	}
	r.has("", "freed", "of it", "kept", "v")
	gone := map[string]bool{}
	for after := rev; len(gone) < 2; {
		removed, at, err := r.Store.Watch(r.ctx, "lost", after)
		if err != nil {
			r.Fatal(err)
		}
		for _, p := range removed {
			if !p.Removed {
				r.Errorf("%+v", p)
			}
			gone[p.Key] = true
		}
		after = at
	}
	r.Pass(r.Rig.Lease)
	r.has("", "freed", "of it")
}

// leaseEnded: nothing can be done with a lease that has ended, by hand or by itself.
func (r *run) leaseEnded() {
	byHand, late := r.held("a"), r.held("b")
	if err := r.Store.End(r.ctx, byHand); err != nil {
		r.Fatal(err)
	}
	r.has("", "b", "v")
	r.Pass(r.Rig.Lease)
	r.has("")
	for _, l := range []cluster.Lease{byHand, late, late + 1000} {
		r.refused(cluster.Txn{Put: []cluster.Pair{{Key: "a", Lease: l}}}, cluster.ErrLease)
		for _, err := range []error{r.Store.Renew(r.ctx, l), r.Store.End(r.ctx, l)} {
			if !errors.Is(err, cluster.ErrLease) {
				r.Errorf("lease %d: %v", l, err)
			}
		}
	}
	r.has("")
}
