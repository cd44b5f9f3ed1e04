// Package client is how a program uses a cluster of nodes: it connects to all of
// them, loads datasets, finds them again, and reads them.
//
// # Model
//
// A Client is an element that lends nothing but what a transfer needs. Connect
// dials the nodes it is given, asks them for their peers, and dials those too:
// whoever starts a function must be connected to every element that the function may
// run on. A connection that is lost is dialled again in the background.
//
// Only the client that loads coordinates the nodes: it begins a load at each
// node, fills the shards, has every node check the table, and then makes it visible everywhere. A
// load that fails, or whose client dies, leaves nothing behind.
//
// # Errors
//
// Errors name the node and say what can be done. What a node answered wraps the
// sentinels of cluster, dataset and control, so that errors.Is works.
package client
