// Package sim runs many elements in one process on one virtual clock, with
// everything that happens coming from one seed: a failure that prints its seed can
// be repeated exactly. There are three ways in; the third gives up some of that.
//
// # A network of real elements
//
// A Network has Hosts, and each life of a host is a fabric.Element: the real one, with its keys, credit,
// fences, keep-alives and the rest. What is simulated is what lies below, a
// fabric.Transport. Each fault is applied at one layer only:
//
//   - Packets are lost, doubled, delayed each by its own time and so reordered
//     (WireFaults.Loss, Duplicate, MinDelay, MaxDelay), and all lost by a Partition.
//   - A wire numbers its packets, as TCP does: what comes twice is dropped, what comes early waits,
//     what was lost is sent again. So the fabric.Link above it keeps its contract: each
//     frame once and in order, late perhaps, or the link breaks (Tries, Cut). Between two wires nothing is ordered.
//   - A wire has room for few frames (Room), so that senders meet full links; bulk data is delivered whole, placed at once,
//     or placed over several polls (Pieces); descriptors travel beside the frames (Descriptors).
//   - A broken wire delivers what was under way up to some point in each direction, and
//     each end hears of it after a while (Detect), or not at all if the other host crashed (Silent): then
//     Limits.PeerTime finds out, as it does for partitions.
//   - A host is slow (Lag), looks at its endpoints in any order, and takes a few frames at a time (Burst).
//     Crash ends its life and all it knew; Boot begins another, of another incarnation; Stop closes the element.
//
// Nothing is altered on its way: whom a peer's bytes could deceive is for fuzz targets.
// With Descriptors a crash revokes what peers have mapped at once; a real one leaves them its memory until they hear of it.
//
// Connect joins two hosts without HELLO. Element.Dial and Listen work too, at
// "sim://" and the host's name, and run HELLO over the wire.
//
// # Who runs
//
// World.Run makes everything happen, on the goroutine that calls it. Host.Do runs something
// that does not wait: operations that are started, Post, TrySend, Op.Poll. What waits
// (Import, Send, Flush, Op.Wait, Op.Forget, Dial) belongs into Host.Go: a coroutine, which gives the turn
// back to the world where another program's goroutine would sleep. A host's calls run one after the other, those
// of Host.Fork beside each other; so do goroutines that a layer above asks its element for (fabric.Scheduler): the
// code of calls (rpc) runs here as it is. Contexts
// with a deadline on the world's clock come from Host.Timeout. A handler may call
// HandOff, but what would wait in it belongs into Host.Go as well.
//
// Keys' secrets and HELLO's nonces are random, and nothing may depend on them; Network.Observe
// tells of everything else, for comparing two runs of one seed.
//
// # A world of protocol cores
//
// A World alone has Nodes whose Handler is a protocol core without an element, such as inject/travel's: the
// world tells it of peers, messages and time, on one goroutine, and it answers
// with Node.Send. What messages mean is the handler's affair. Between each two
// living nodes there is a link, or several (Faults.Links); each end knows the other by a small number that
// is new for every link, as a transport's endpoint would be. Here Faults apply to messages themselves: a core must bear
// what no fabric.Link would do to it.
//
// A crash loses what the node knew and what it had not yet sent off; what is
// under way from it arrives up to some point and no further. The peers hear of
// it after a detection delay. A link that broke between two living nodes is made again.
//
// # A network of elements that drive themselves
//
// A Live network is one with the same wires for elements as programs have them, with goroutines and
// the machine's clock: a Port of it is a transport like any other. So what is written for any transport, the
// conformance suites first of all, runs over it unchanged. The seed decides what becomes of packets, not which goroutine
// comes first: a failure is likely to come again with its seed, and no more than that. Port.Crash is to it what kill -9 is to
// a process, Port.Freeze what SIGSTOP is.
//
// # What is checked with it
//
// Ports pass the fabric's suite (fabric/fabrictest) and that of calls (rpc/rpctest).
// The tests of this package run networks against a model: every operation ends once, numbered messages
// arrive in order while their connection lives, memory holds what was put, credit comes back,
// full queues drain, fences and flushes order, keys allow what their owner has on record and nothing once they are revoked,
// and no buffer is touched after it was given back. Those of rpc do the same for calls. -seed=n repeats one trial, -soak=10m tries new ones.
package sim
