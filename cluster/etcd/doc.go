// Package etcd keeps what a cluster knows in etcd: cluster.Store on an etcd cluster, the operator's own or one that runs inside wherry's nodes.
//
// # Model
//
// Dial connects to an etcd cluster that is run apart from wherry. Start runs one member of an etcd cluster in this process: alone, or with the members
// that other processes run. A member that is alone listens nowhere; members of a cluster listen for each other only. Either way a Store is what
// comes out, and passes cluster/storetest.
//
// etcd and gRPC are heavy. Only cmd/wherry imports this package; programs that use the library ask a manager by wherry's own calls.
//
// # Errors
//
// Errors are cluster's sentinels. cluster.ErrAway says that etcd gave no answer: whether a Commit took place is then unknown, and a condition
// on a revision tells (cluster.Txn.If).
package etcd
