// Package ucx runs ucx_perftest as a peer and reads what it prints: Debian's, or whatever else is in the PATH, and
// the newer one of PyPI's wheel, where install-ucx.sh has put it.
//
// # What its tests are, in the terms of the other peers
//
// ucp_am_lat is a ping-pong of active messages. It prints half of the round
// trip, since its users think in one-way times; here it is doubled again. Its percentile is over
// the last 2048 round trips only, the averages over all.
//
// ucp_get and ucp_put_bw with at most one operation outstanding are one-sided
// transfers of 1 MiB. They count operations over time; their percentile is the time to
// post one, not to complete it, so it is not used.
//
// Over tcp, which has no one-sided operations, UCX answers ucp_get and ucp_put_bw in software. Its active messages
// are several times faster there: ucp_am_lat with 1 MiB each way is its own row ("ucx am"),
// the time of one direction taken for a put.
//
// A test with many echoes under way does not exist in ucx_perftest.
package ucx
