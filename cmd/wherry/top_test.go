package main

import (
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool/manager"
)

// TestWriteTop: each node has a line with what it lends, what is taken, what is free and how busy it is.
func TestWriteTop(t *testing.T) {
	var text strings.Builder
	busy := manager.TopComponent{Component: manager.Component{Member: cluster.Member{Name: "c0"}, Capacity: 512 << 20, Local: 64 << 20, Load: 37}, Placed: 128 << 20, Free: 320 << 20, Extents: 2}
	regions := []manager.TopRegion{{Name: "gone", Size: 1 << 20, Owner: "me", State: "ready", Lost: []string{"c1", "c2"}}, {Name: "half", Size: 1 << 20, Owner: "me", State: "ready",
		Components: []string{"c0"}, Lost: []string{"c1"}}}
	writeTop(&text, &manager.Top{Manager: "m0", Managers: []string{"m0", "m1"}, Store: "etcd", Components: []manager.TopComponent{busy}, Regions: regions})
	for _, want := range []string{"managers m0, m1; m0 answers, from etcd", "NODE      LENDS     PLACED     OTHER       FREE  EXTENTS  BUSY", "c0  512.0 MiB  128.0 MiB  64.0 MiB  320.0 MiB        2  37 %",
		"me     ready  lost: c1, c2\n", "me     ready  c0; lost: c1\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("without %q:\n%s", want, text.String())
		}
	}
}
