package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
)

// fixedTable is rows without text over two elements, in Arrow files.
func fixedTable(t testing.TB) *Table {
	tab := &Table{Name: "next", Version: 2, Kind: Records, Schema: mustSchema(t, "next:u64"), Sharding: BlockOf([]uint64{3, 2})}
	for i, n := range []uint64{3, 2} {
		tab.Shards = append(tab.Shards, Shard{Element: fmt.Sprint("n", i), Incarnation: fabric.Incarnation(i + 1), Addrs: []string{"tcp://[::1]:1"},
			Windows: []Window{{Key: testKey(i+1, 0, 65536), Size: 8 * n, Writable: true}, {Size: 136}, {Key: testKey(i+1, 2, 135168), Size: 135168}}})
	}
	tab.FillRows()
	return tab
}

// listTable is graphTable in Arrow files, with weights.
func listTable(t testing.TB) *Table {
	tab := graphTable(t)
	for i := range tab.Shards {
		w := tab.Shards[i].Windows
		tab.Shards[i].Windows = append(w, Window{Size: 2 * w[FwdTargetsWindow].Size}, Window{}, Window{Size: 600000})
	}
	return tab
}

func TestFileTables(t *testing.T) {
	for want, spoil := range map[string]func(*Table){
		"1 windows, the first shard has 3":   func(tab *Table) { tab.Shards[1].Windows = tab.Shards[1].Windows[:1] },
		"window 1 is writable":               func(tab *Table) { tab.Shards[0].Windows[FixedDirectory].Writable = true },
		"24 bytes, and the windows in it 24": func(tab *Table) { tab.Shards[0].Windows[FixedFile] = Window{Size: 24} },
		"window 0 has 23 bytes":              func(tab *Table) { tab.Shards[0].Windows[FixedValues] = Window{Size: 23} },
		"3 windows, records of a:str have 2": func(tab *Table) { tab.Schema = mustSchema(t, "a:str") },
	} {
		tab := fixedTable(t)
		spoil(tab)
		if err := tab.Validate(); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	graph := listTable(t)
	graph.Shards[0].Windows[FwdTargetsWindow].Writable = true
	if err := graph.Validate(); err == nil || !strings.Contains(err.Error(), "window 1 is writable") {
		t.Errorf("a graph that can be written: %v", err)
	}
	if !listTable(t).Weighted() || graphTable(t).Weighted() || fixedTable(t).Weighted() {
		t.Error("only one of the graphs has weights")
	}
	for _, tc := range []struct {
		tab  *Table
		file int
		cols string
	}{{fixedTable(t), FixedFile, "next u64"}, {listTable(t), GraphFile, ""}, {graphTable(t), -1, ""}, {logTable(t), -1, ""}, {columnTable(t), -1, "user id i64"}} {
		got := ""
		if c, ok := tc.tab.Readable(); ok {
			got = fmt.Sprint(c[0].Name, " ", c[0].Type)
		}
		if tc.tab.File() != tc.file || got != tc.cols {
			t.Errorf("%s: file %d, columns %q", tc.tab.Name, tc.tab.File(), got)
		}
	}
}

func TestFixedColumn(t *testing.T) {
	for text, want := range map[string]string{"next:u64": "next u64", "a:f32": "a f32", "flag:bool": "flag bytes1", "id:bytes16": "id bytes16",
		"a:u8,b:u32": "row bytes8", "a:bool,b:bool": "row bytes2", "a:str": "", "a:u8,b:str": ""} {
		s := mustSchema(t, text)
		got := ""
		if c, ok := FixedColumn(&s); ok {
			got = c.Name + " " + c.Type.String()
		}
		if got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}
