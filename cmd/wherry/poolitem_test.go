package main

import (
	"testing"

	"github.com/wherry-fabric/wherry/pool"
)

// TestWhere: each node that has a part of an item or a region is named, and where none has any more that is said.
func TestWhere(t *testing.T) {
	for want, i := range map[string]pool.ItemInfo{
		"a":    {Component: "a"},
		"a, b": {Component: "a", Parts: []pool.ItemPart{{Component: "a"}, {Component: "b"}}},
	} {
		if got := itemNodes(i); got != want {
			t.Errorf("%+v: %q", i, got)
		}
	}
	for want, r := range map[string]pool.Info{
		"node a":                                {Component: "a"},
		"nodes a, b":                            {Component: pool.Manager, Placed: []string{"a", "b"}},
		"nodes a (lost with what they held: b)": {Component: pool.Manager, Placed: []string{"a"}, Lost: []string{"b"}},
		"no node any more (lost with what they held: a, b)": {Component: pool.Manager, Lost: []string{"a", "b"}},
	} {
		if got := whereText(&r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
