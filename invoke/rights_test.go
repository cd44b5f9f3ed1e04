package invoke

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TestRights: a key that lacks a right does not say why; the call does, before anything is sent.
func TestRights(t *testing.T) {
	echo := xrdma.Echo()
	m := echo.Manifest()
	m.Windows = []image.Window{{Name: "index"}, {Name: "cells", Writable: true}}
	img, err := image.Build(m, echo.Entries()...)
	if err != nil {
		t.Fatal(err)
	}
	const r, rw, all = fabric.RightRead, fabric.RightRead | fabric.RightWrite, fabric.RightsAll
	first := uint32(0)
	for _, c := range []struct {
		name     string
		rights   [3]fabric.Rights // on the second shard's windows, the last of which no manifest names
		writable bool
		element  *uint32
		kind     error // nil: it may run
		says     []string
	}{
		{"all", [3]fabric.Rights{all, all, all}, true, nil, nil, nil},
		{"just enough", [3]fabric.Rights{r, rw, r}, true, nil, nil, nil},
		{"writable, so the table says nothing else", [3]fabric.Rights{r, rw, r}, false, nil, nil, nil},
		{"sealed", [3]fabric.Rights{r, r, r}, false, nil, ErrRequest, []string{"echo writes window 1 (cells), and log is sealed", "mem load --writable"}},
		{"not granted", [3]fabric.Rights{all, r, all}, true, nil, cluster.ErrForbidden,
			[]string{"echo writes window 1 (cells)", "your rights on log at n2 (r--)", "you lack right write"}},
		{"atomic alone", [3]fabric.Rights{all, r | fabric.RightAtomic, all}, true, nil, cluster.ErrForbidden, []string{"(r-a)", "right write"}},
		{"not even to be read", [3]fabric.Rights{fabric.RightWrite, rw, rw}, true, nil, cluster.ErrForbidden, []string{"echo reads window 0 (index)", "(-w-)", "right read"}},
		{"nothing", [3]fabric.Rights{all, 0, all}, true, nil, cluster.ErrForbidden, []string{"(---)", "rights read, write"}},
		{"without a name", [3]fabric.Rights{all, all, 0}, true, nil, cluster.ErrForbidden, []string{"echo reads window 2, and"}},
		{"elsewhere", [3]fabric.Rights{0, 0, 0}, false, &first, nil, nil},
	} {
		table := &cluster.Table{Name: "log", Kind: cluster.Raw, Shards: []cluster.Shard{{Element: "n1"}, {Element: "n2"}}}
		for _, rights := range c.rights {
			w := cluster.Window{Size: 8, Writable: c.writable, Key: fabric.Key{Owner: 1, Rights: rights}}
			table.Shards[1].Windows = append(table.Shards[1].Windows, w)
		}
		whole := cluster.Window{Size: 8, Writable: true, Key: fabric.Key{Owner: 1, Rights: all}}
		table.Shards[0].Windows = []cluster.Window{whole, {}} // what is empty has no key
		req := &Request{Image: img, Table: table, Element: c.element}
		err := req.checkRights()
		if !errors.Is(err, c.kind) || (err == nil) != (c.kind == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.kind)
		}
		for _, want := range c.says {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", c.name, err, want)
			}
		}
	}
	if err := (&Request{Image: img}).checkRights(); err != nil {
		t.Errorf("on no dataset: %v", err)
	}
}
