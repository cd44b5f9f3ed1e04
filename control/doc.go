// Package control is what nodes and their clients say to each other: the
// calls' names, their requests and answers, their errors, authentication (Auth) and
// how connections to members are kept (Links).
//
// # Model
//
// Calls go over package rpc; their bodies are JSON. A body may have members
// that a reader does not know: it ignores them, so that programs of different
// versions understand each other. What could be misunderstood gets a new call name.
//
// A dataset is loaded in two steps. Each node gets a load (CallBegin) that reserves the name
// there, and memory for its shard, filled from the client's memory
// (CallAlloc, CallFill) or from a file of its own (CallFile). When all have theirs, each checks the
// shard table (CallPrepare), and then makes the name visible (CallCommit). A load that
// its client leaves behind is freed; if it was prepared, the nodes of its table ask each other
// whether anybody has committed (CallOutcome): one that says no never will.
//
// # Errors
//
// A node's error travels with a code; Err turns it back into an error that wraps
// the sentinel it was made from (cluster.ErrNotFound, ErrMemory, …), so that errors.Is
// works across elements.
package control
