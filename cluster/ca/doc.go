// Package ca is a small certificate authority for a cluster, and what nodes and
// clients do with its certificates.
//
// # Model
//
// An Authority is a folder: a certificate and its key, the certificates that it
// issued, and a list of those that were revoked. All of it is X.509 in PEM, which
// other tools read too. A certificate says who its holder is in a URI among its
// names (PrincipalURI):
//
//	wherry://principal/ann?caps=inject,read
//
// A node's certificate has, besides, the hosts at which others dial it, and is
// good for both ends of a connection; a client's is good for the dialling end
// only, so that a client cannot pass for a node.
//
// An Identity is what one element has of it: its certificate and key, the
// authority's certificate, and the list of revoked ones. It reads its files again
// when they change; what is wrong then leaves what was good before in force.
//
// # Errors
//
// ErrRequest: something asked for cannot be. ErrNotFound: no such certificate.
// ErrRefused: a certificate is not accepted. ErrFile: a file that was named cannot
// be used; the message says which and what to do.
package ca
