// Package faults asks a cluster questions while it breaks, and holds every answer against the truth.
//
// # Model
//
// Real wherry nodes run each in a network namespace of its own, joined by a bridge. While callers ask for chases, closures, counts, queries and
// plain calls, one fault after the other is made: nodes are killed and started again, stopped and let go on, cut off from all others or from one,
// and programs leave in the middle of their calls. A node that lost its data gets new and different data, so that an answer from
// parts of two versions is seen.
//
// # Verdicts
//
// Each call ends in an answer or an error, and four numbers count what must not be:
//
//   - wrong: an answer that is not the one that its version of the data has.
//   - late: an end more than LateAfter past the call's deadline. What this process was itself kept from the processor is not counted.
//   - nameless: an error that names no node.
//   - leftover: what nodes still have when everything has ended: branches, calls, memory, places, descriptors.
//
// Run needs to be alone: the process that calls it is started anew by Enter, in namespaces of its own, which end with it.
package faults
