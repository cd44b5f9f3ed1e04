// Package seams implements wherry's three seams from outside its tree: an engine, a backing and a transport. Each is as small as
// it can be and passes the suite that wherry's own pass.
package seams
