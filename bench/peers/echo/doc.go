// Package echo holds the peers that are Go libraries, and wherry: the same
// small service over each of them.
//
// # Model
//
// A Peer makes a Server in one process and a Client in another. The service has
// three calls: echo answers with its request, of any size, get with figures.BulkBytes bytes, put takes as many and
// answers with the last eight of them. Clients check every answer.
//
// No protobuf compiler is needed: gRPC and Connect are given a codec that passes
// bytes through, and service descriptions written by hand.
//
// # Ownership
//
// A Client is used by one goroutine at a time for Get and Put, and by
// figures.Depth at once for Echo. What Echo and Get return is valid until the next call with the same buffer.
package echo
