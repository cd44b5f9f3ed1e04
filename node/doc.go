// Package node is one process that lends: it listens, keeps connections to its
// peers, holds shards of datasets, serves the control calls and shows metrics.
//
// # Model
//
// New builds everything from one Config and listens; Run keeps it going until
// its context ends, then stops in order: nothing new is taken, what is under way may
// finish within Config.StopTime, the rest is cut off. A node keeps no state
// on disk: datasets go with the process, and a restarted node is another incarnation.
//
// # Ownership
//
// The node owns its element; Element shows it to programs that build on it. Close
// frees all memory lent.
package node
