// Package sim is a world of elements on one virtual clock: links with delay,
// loss, duplication, reordering and bounded queues; crashes, restarts as a new
// incarnation, cut links and partitions. Everything that happens comes from one
// seed, so a failure that prints its seed can be repeated exactly.
//
// # Model
//
// A Node is an element. Its Handler is whatever protocol is to be tested: the
// world tells it of peers, messages and time, on one goroutine, and it answers
// with Node.Send. What messages mean is the handler's affair. Between each two
// living nodes there is a link; each end knows the other by a small number that
// is new for every link, as a transport's endpoint would be.
//
// A crash loses what the node knew and what it had not yet sent off; what is
// under way from it arrives up to some point and no further. The peers hear of
// it after a detection delay. A link that broke between two living nodes is made again.
package sim
