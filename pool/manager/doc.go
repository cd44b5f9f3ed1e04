// Package manager decides where regions of remote memory lie: which component lends each extent. Any number of managers may act at once.
//
// # Model
//
// What managers know is in a cluster.Store: components and managers, each under a lease, and regions with their extents. A Core is one manager's
// logic and nothing else: it is told what has changed in the store, what was asked, what components answered and how late it is, and says what to
// commit, whom to tell and what to answer. It has no clock, no connection and no goroutine, so a simulation runs it. A Manager runs a Core on a real
// store and real connections.
//
// Each decision is one transaction. One that takes or frees extents has the condition that no other manager has taken or freed any since (the key
// "placed"), so two managers never give the same bytes; the loser looks again. A region whose components are still to be told names the manager that
// does it; if that manager's lease ends, another goes on. An answer is no older than its question: before a manager answers, it reads when extents and
// losses changed last ("placed", "placed/lost") and waits until it has heard of that.
//
// # Leases and epochs
//
// A component keeps its entry alive by telling any manager of itself, within LeaseTime. When its lease has ended and it does not come back within a grace,
// its extents are lost: the region's table says so, and its epoch rises, so that a component refuses clients that come with the old table. A component that
// was silent and comes back is told to free what is not its any more. A lease that ended because the store or the manager stood still says nothing of its
// component: a manager that sees either by its own renewals and clock calls none lost for a while.
//
// # Errors
//
// Those of package pool; ErrBusy; cluster.ErrAway while the store gives no answer. Regions that are open go on meanwhile.
package manager
