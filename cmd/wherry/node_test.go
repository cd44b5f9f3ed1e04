package main

import (
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/node"
)

// TestEveryKeyHasAFlag: what the configuration file can say, a flag can.
func TestEveryKeyHasAFlag(t *testing.T) {
	a := &app{out: io.Discard, err: io.Discard}
	flags := a.nodeCommand().Flags()
	singular := map[string]string{"data-roots": "data-root", "limits": "limit", "trust": "trust-file"} // one a flag; a file of the same list
	keys := 0
	for _, f := range append(reflect.VisibleFields(reflect.TypeFor[node.Config]()), reflect.VisibleFields(reflect.TypeFor[ca.Settings]())...) {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		keys++
		name := strings.ReplaceAll(key, "_", "-")
		if one := singular[name]; one != "" {
			name = one
		}
		if flags.Lookup(name) == nil {
			t.Errorf("%s can be set in the file only: there is no --%s", key, name)
		}
	}
	if keys < 20 {
		t.Errorf("only %d keys were looked at", keys)
	}
}
