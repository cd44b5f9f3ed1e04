// Package nbd serves a borrowed drive by the NBD protocol, so that its many clients (qemu, nbd-client, nbdcopy, fio) can use it: the newstyle handshake, fixed
// or not, and simple replies.
//
// A Server has any number of connections up to MaxConnections, each with up to maxRequests requests under way, which are answered as they end. Flush on
// one connection makes durable what was written on all.
//
// # Model
//
// The handshake runs on a goroutine. From then on the connection is the leader's: the Server is a poller of the borrower's element, its sockets are in the leader's
// epoll set. The leader receives requests, submits them as commands to the borrowed drive, and sends the answers of all commands that have ended with one writev for each client,
// out of the buffers that the lender read them into. A client that does not read its answers has them copied, so that it holds no buffer, and is not received from.
//
// NBD knows no users: whoever reaches the address has the drive, so keep to loopback or to a Unix
// socket in a directory of your own.
//
// The protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
package nbd
