// Package devicetest holds no code, only tests: borrowed devices from end to end. A node lends a file as a drive; programs borrow it over each transport and
// write it; either side is killed; and whatever a borrower does wrong is refused or costs its own lease.
package devicetest
