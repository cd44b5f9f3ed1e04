// Package schemes lists the transports of this repository. It is the one place that names them all: node, client,
// bench and doctor are given the list, or one with more entries.
package schemes

import (
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

// All is the list, the preferred ones first.
func All() fabric.Schemes { return fabric.Schemes{shm.Scheme(), tcp.Scheme()} }
