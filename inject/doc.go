// Package inject runs functions that travel. A Runtime belongs to one fabric
// element: it starts invocations (Prepare, Start), runs the branches that
// arrive, and carries out what they ask for.
//
// # Model
//
// A function image (inject/image) and a shard table (cluster.Table) are objects, known by
// their content. An invocation names both; the first message to a peer brings
// what the peer lacks, later ones a two-byte handle. Who owns a branch, when an
// invocation is complete and what a loss means is the business of inject/travel, a
// pure protocol core; running code safely is that of an Engine (inject/wasm). This package
// connects the two to the fabric's endpoints, segments and keys.
//
// # Ownership
//
// A Runtime serialises all calls of the core with one mutex. Functions run
// outside of it: first on the goroutine that drives the fabric, and as soon as
// a slice of about 100 µs is over, or a call blocks, another goroutine takes
// over the fabric.
//
// # Authority
//
// A function acts with the keys in its shard table and with nothing else: not
// with the node's own. A peer without the inject capability is refused before its code is parsed.
package inject
