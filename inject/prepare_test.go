package inject_test

import (
	"fmt"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestPreparedByContent: what earlier calls prepared serves later ones only for the same table, whatever it is called.
func TestPreparedByContent(t *testing.T) {
	_, nodes := mesh(t, 2, fabric.Balanced)
	table, _ := permutation(t, nodes, 64)
	for round := range 3 {
		for i := range 40 { // more than are kept
			table.Version = uint64(1 + i%25)
			table.Shards[0].Element = fmt.Sprintf("renamed%d.%d", i%25, i%2)
			f, err := nodes[0].rt.Prepare(xrdma.Chase(), table)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Table(); got == table || got.Version != table.Version || got.Shards[0].Element != table.Shards[0].Element {
				t.Errorf("round %d, table %d: prepared for version %d of %s", round, i, got.Version, got.Shards[0].Element)
			}
			f.Close()
		}
	}
}
