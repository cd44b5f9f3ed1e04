// Package nbd serves a borrowed drive by the NBD protocol, so that its many clients (qemu, nbd-client, nbdcopy, fio) can use it: the newstyle handshake, fixed
// or not, and simple replies.
//
// A Server has any number of connections up to MaxConnections, each with up to maxRequests requests under way, which are answered as they end. Flush on
// one connection makes durable what was written on all. NBD knows no users: whoever reaches the address has the drive, so keep to loopback or to a Unix
// socket in a directory of your own.
//
// The protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
package nbd
