// Package sockdir finds room for temporary files where the path of a Unix socket fits, which has 107 bytes:
// TMPDIR may name a folder that is too deep for that.
package sockdir

import (
	"os"
	"path/filepath"
)

// mostBytes is how long the name of the folder for temporary files may be: below it there is a folder of one's
// own, of a test or a script with a name of up to 70 bytes, and then the socket.
const mostBytes = 32

// Root is the folder for temporary files, or /tmp if its name is too long, or means another folder to a process that works elsewhere.
func Root() string {
	if dir := os.TempDir(); len(dir) <= mostBytes && filepath.IsAbs(dir) {
		return dir
	}
	return "/tmp"
}

// Make makes a new folder, as os.MkdirTemp does, in which sockets can be.
func Make(pattern string) (string, error) { return os.MkdirTemp(Root(), pattern) }

// Shorten has this process and its children keep all their temporary files where Make does. It is for tests,
// whose TestMain calls it before all else.
func Shorten() error {
	if dir := Root(); dir != os.TempDir() {
		return os.Setenv("TMPDIR", dir)
	}
	return nil
}
