// Package cluster is what elements agree on: who there is (Member), where a
// dataset's rows are (Sharding, Table), which datasets have which names
// (Catalog), and who may do what (Token, Principal). It holds data and rules
// only: no sockets, no clock, no goroutines.
//
// # Model
//
// A dataset's rows are spread over elements by a Sharding, a rule from which
// every element computes the same answer. A Table adds to it what the rule
// cannot know: which element is which, and the keys of its windows. A table is
// immutable; its ID is the hash of its encoding, so that every hop of a
// function agrees where data is. A change makes a new version.
//
// # Ownership
//
// A Table handed to a Catalog is copied, as is what comes out of it. A Catalog keeps its entries in a Store, which may be
// shared: a change is one transaction, made only if the entry has not changed since it was read. It reads a copy.
//
// # Errors
//
// Sentinels tell kinds apart (ErrTable, ErrSharding, ErrPeers, ErrToken,
// ErrNotFound, ErrExists, ErrForbidden, ErrVersion, ErrFull); messages name what is wrong
// and, where an operator can act, what to do.
package cluster
