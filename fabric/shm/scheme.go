package shm

import (
	"errors"
	"path/filepath"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

// Scheme is the transport as programs choose it.
func Scheme() fabric.Scheme {
	return fabric.Scheme{
		Name: "shm", Example: "shm:///run/wherry/a.sock",
		New: func(fabric.Credentials) (fabric.Transport, error) { return New(Config{}) },
		Check: func(place string) error {
			if !filepath.IsAbs(place) {
				return errors.New("is not shm:// and an absolute path")
			}
			return nil
		},
		Here:  func(dir, name string) string { return "shm://" + filepath.Join(dir, name+".sock") },
		Probe: "shared memory", For: "transport shm, between processes of one machine",
		Do: "use transport tcp; check that Unix sockets can be made in " + sockdir.Root(),
	}
}
