package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/golden"
	"github.com/wherry-fabric/wherry/schema"
)

func mustSchema(t testing.TB, text string) schema.Schema {
	t.Helper()
	s, err := schema.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

func testKey(owner, slot int, size uint64) fabric.Key {
	return fabric.Key{Owner: fabric.Incarnation(owner), Slot: uint32(slot), Generation: 1, Secret: [16]byte{1, 2, byte(slot)}, Size: size, Rights: fabric.RightRead, Sealed: true}
}

// logTable is records over three elements, with text.
func logTable(t testing.TB) *Table {
	tab := &Table{Name: "web/logs", Version: 7, Kind: Records, Schema: mustSchema(t, "name:str,status:u16,bytes:u64"), Sharding: BlockOf([]uint64{3, 0, 2})}
	tab.Schema.Fields[1].Help = "HTTP status"
	for i := range 3 {
		_, n := tab.Sharding.ElementRows(uint32(i))
		tab.Shards = append(tab.Shards, Shard{Element: fmt.Sprintf("node-%d", i), Incarnation: fabric.Incarnation(i + 1),
			Addrs:   []string{"tcp://10.0.0.1:70" + fmt.Sprint(10+i), "shm:///run/w.sock"},
			Windows: []Window{{Key: testKey(i+1, 0, 4096), Size: n * 24}, {Key: testKey(i+1, 1, 4096), Size: 100, Writable: true}}})
	}
	tab.FillRows()
	return tab
}

func graphTable(t testing.TB) *Table {
	tab := &Table{Name: "g", Version: 1, Kind: CSR, Sharding: Sharding{Kind: Hash, Elements: 2, Rows: 5}}
	for i := range 2 {
		_, n := tab.Sharding.ElementRows(uint32(i))
		tab.Shards = append(tab.Shards, Shard{Element: fmt.Sprint("n", i), Incarnation: fabric.Incarnation(i + 1), Addrs: []string{"tcp://[::1]:1"},
			Windows: []Window{{Size: 8 * (n + 1)}, {Size: 12}, {Size: 8 * (n + 1)}, {Size: 0}, {Size: 4 * (n + 1)}, {Size: 9}}})
	}
	tab.FillRows()
	return tab
}

// columnTable is columns over two elements: three parts, one of them on the second.
func columnTable(t testing.TB) *Table {
	tab := &Table{Name: "c", Version: 3, Kind: Columns, Sharding: BlockOf([]uint64{5, 2}), Columns: column.Schema{
		{Name: "user id", Type: column.Type{ID: column.I64}},
		{Name: "when", Type: column.Type{ID: column.Timestamp, Unit: column.Microsecond, Zone: "UTC"}, Nullable: true},
		{Name: "level", Type: column.Type{ID: column.UTF8}}}}
	for i, parts := range [][]Part{{{Rows: 4, Chunks: 2}, {Rows: 1, Chunks: 1}}, {{Rows: 2, Chunks: 1}}} {
		s := Shard{Element: fmt.Sprint("n", i), Incarnation: fabric.Incarnation(i + 1), Addrs: []string{"tcp://[::1]:1"}, Parts: parts}
		for range parts {
			s.Windows = append(s.Windows, Window{Size: 900}, Window{Size: 300})
		}
		tab.Shards = append(tab.Shards, s)
	}
	tab.FillRows()
	return tab
}

func TestTableGolden(t *testing.T) {
	keyed := logTable(t)
	keyed.Sharding = KeyedOf("name", []uint64{3, 0, 2})
	columnKey := columnTable(t)
	columnKey.Sharding = KeyedOf("user id", []uint64{5, 2})
	raw := &Table{Name: "r", Kind: Raw, Sharding: Sharding{Kind: Cyclic, Elements: 1, Rows: 9}, Rows: 9,
		Shards: []Shard{{Element: "a", Incarnation: 1, Addrs: []string{"ucx://x"}, Rows: 9}}}
	for name, tab := range map[string]*Table{"records": logTable(t), "keyed": keyed, "graph": graphTable(t), "raw": raw, "columns": columnTable(t), "columns-keyed": columnKey,
		"fixed": fixedTable(t), "lists": listTable(t)} {
		got, err := tab.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden.CheckHex(t, filepath.Join("testdata", fmt.Sprintf("table-v%d-%s.hex", versionOf(tab), name)), got)
		back, err := DecodeTable(got)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tab, back); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for n := range got {
			if _, err := DecodeTable(got[:n]); !errors.Is(err, ErrTable) {
				t.Errorf("%s cut at %d: %v", name, n, err)
			}
			bad := bytes.Clone(got)
			bad[n] ^= 0x10
			if _, err := DecodeTable(bad); !errors.Is(err, ErrTable) {
				t.Errorf("%s changed at %d: %v", name, n, err)
			}
		}
	}
}

func TestTableID(t *testing.T) {
	a, b := logTable(t), logTable(t)
	idA, err := a.ID()
	if err != nil {
		t.Fatal(err)
	}
	if idB, _ := b.ID(); idA != idB {
		t.Error("equal tables have different identities")
	}
	b.Version++
	if idB, _ := b.ID(); idA == idB {
		t.Error("different tables have the same identity")
	}
	bare := a.WithoutKeys()
	if !bare.Shards[0].Windows[0].Key.IsZero() || a.Shards[0].Windows[0].Key.IsZero() {
		t.Error("WithoutKeys keeps keys, or takes them from the original")
	}
	if _, err := bare.Encode(); err != nil {
		t.Error(err)
	}
	if out, _ := json.Marshal(a); strings.Contains(strings.ToLower(string(out)), "secret") {
		t.Errorf("JSON has secrets: %s", out)
	}
}

func TestTableLookups(t *testing.T) {
	tab := logTable(t)
	if e, local, ok := tab.Owner(4); e != 2 || local != 1 || !ok {
		t.Error(e, local, ok)
	}
	if tab.Index("node-1") != 1 || tab.Index("x") != -1 || tab.IndexOf(3) != 2 || tab.IndexOf(9) != -1 {
		t.Error("Index")
	}
	if m := tab.Members(); len(m) != 3 || m[2].Name != "node-2" {
		t.Error(m)
	}
}

func TestTableErrors(t *testing.T) {
	tests := []struct {
		change func(*Table)
		want   string
	}{
		{func(t *Table) { t.Name = "a b" }, `the name "a b" must be letters`},
		{func(t *Table) { t.Kind = 9 }, "kind 9 is unknown"},
		{func(t *Table) { t.Schema.Fields = nil }, "at least one field"},
		{func(t *Table) { t.Kind = Raw }, "has no schema"},
		{func(t *Table) { t.Rows++ }, "6 rows, its sharding has 5"},
		{func(t *Table) { t.Sharding.Elements = 0 }, "0 elements"},
		{func(t *Table) { t.Shards = t.Shards[:2] }, "2 shards, its sharding has 3 elements"},
		{func(t *Table) { t.Shards[1].Element = "node-0" }, "shards 0 and 1 are both of element node-0"},
		{func(t *Table) { t.Shards[1].Incarnation, t.Shards[1].Windows = 1, t.Shards[0].Windows[:0] }, "windows, records of"},
		{func(t *Table) { t.Shards[1].Incarnation = 0 }, "its incarnation is 0"},
		{func(t *Table) { t.Shards[0].Rows = 1 }, "1 rows from 0, its sharding says 3 from 0"},
		{func(t *Table) { t.Shards[0].Addrs = nil }, "has no address"},
		{func(t *Table) { t.Shards[0].Windows[0].Key.Owner = 9 }, "its key is of incarnation"},
		{func(t *Table) { t.Shards[0].Windows[0].Key.Size = 71 }, "its key covers 71 bytes of 72"},
		{func(t *Table) { t.Shards[0].Windows[0].Key.Rights = 64 }, "unknown rights"},
		{func(t *Table) { t.Shards[0].Windows[0].Size = 71 }, "window 0 has 71 bytes, 3 rows have 72"},
		{func(t *Table) { t.Shards[0].Windows[1].Size = MaxWindowBytes + 1 }, "at most"},
		{func(t *Table) { t.Shards[0].Windows = make([]Window, 17) }, "17 windows"},
		{func(t *Table) { t.Sharding = KeyedOf("nam", []uint64{3, 0, 2}) }, `did you mean "name"`},
	}
	for _, tt := range tests {
		tab := logTable(t)
		tt.change(tab)
		if _, err := tab.Encode(); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want …%s…", err, tt.want)
		}
	}
	graph := []struct {
		window int
		size   uint64
		want   string
	}{
		{0, 8, "the offsets of"}, {1, 3, "vertices have 4 each"}, {2, 0, "the offsets of"}, {4, 8, "the names of"}, {4, 0, "no offsets of them"},
	}
	for _, tt := range graph {
		tab := graphTable(t)
		tab.Shards[0].Windows[tt.window].Size = tt.size
		if err := tab.Validate(); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("window %d: %v, want …%s…", tt.window, err, tt.want)
		}
	}
}

// seal gives bytes a right header, to get past the checksum.
func seal(body []byte) []byte {
	b := append(make([]byte, tableHeadBytes), body...)
	copy(b, tableMagic)
	binary.LittleEndian.PutUint16(b[4:], tableVersion)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[12:], castagnoli(body))
	return b
}

// TestDecodeDamaged changes bodies whose checksum is right: what is accepted is
// canonical.
func TestDecodeDamaged(t *testing.T) {
	good, _ := logTable(t).Encode()
	rapid.Check(t, func(t *rapid.T) {
		body := bytes.Clone(good[tableHeadBytes:])
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			body[rapid.IntRange(0, len(body)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		body = body[:rapid.IntRange(len(body)-2, len(body)).Draw(t, "length")]
		checkDecode(t, seal(body))
	})
}

func checkDecode(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, b []byte) {
	tab, err := DecodeTable(b)
	if err != nil {
		if !errors.Is(err, ErrTable) {
			t.Fatal(err)
		}
		return
	}
	again, err := tab.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, b) {
		t.Fatalf("not canonical:\n%x\n%x", b, again)
	}
}

func FuzzDecodeTable(f *testing.F) {
	for _, tab := range []*Table{logTable(f), graphTable(f)} {
		b, err := tab.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[tableHeadBytes:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkDecode(t, seal(body))
		if _, err := DecodeTable(body); err == nil && len(body) < tableHeadBytes {
			t.Fatal("no header, no error")
		}
	})
}

func TestMaxTable(t *testing.T) {
	name := strings.Repeat("n", MaxNameBytes-4)
	tab := &Table{Name: name, Version: 1, Kind: Raw, Sharding: BlockOf(make([]uint64, MaxElements))}
	for i := range MaxElements {
		s := Shard{Element: fmt.Sprintf("%s%04d", name, i), Incarnation: fabric.Incarnation(i + 1), Windows: make([]Window, MaxWindows)}
		for range MaxAddrs {
			s.Addrs = append(s.Addrs, "ucx://"+strings.Repeat("x", MaxAddrBytes-6))
		}
		tab.Shards = append(tab.Shards, s)
	}
	tab.FillRows()
	b, err := tab.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeTable(b); err != nil {
		t.Fatal(err)
	}
	t.Logf("the largest table without a schema: %d bytes", len(b))
}

// What a table of columns must not say.
func TestColumnTableErrors(t *testing.T) {
	for want, spoil := range map[string]func(*Table){
		"0 columns":                    func(t *Table) { t.Columns = nil },
		"both called":                  func(t *Table) { t.Columns[1].Name = "user id" },
		"its parts have 4 rows":        func(t *Table) { t.Shards[0].Parts[0].Rows = 3 },
		"2 parts and 3 windows":        func(t *Table) { t.Shards[0].Windows = t.Shards[0].Windows[:3] },
		"part 1 is empty":              func(t *Table) { t.Shards[0].Windows[3].Size = 0 },
		"5 rows in 9 chunks":           func(t *Table) { t.Shards[0].Parts = []Part{{Rows: 5, Chunks: 9}, {}} },
		"ranges of rows (block)":       func(t *Table) { t.Sharding = Sharding{Kind: Cyclic, Elements: 2, Rows: 7}; t.FillRows() },
		"kind raw has no columns":      func(t *Table) { t.Kind = Raw },
		"it has parts, which kind raw": func(t *Table) { t.Kind, t.Columns = Raw, nil },
		"columns are sealed":           func(t *Table) { t.Shards[0].Windows[1].Writable = true },
	} {
		tab := columnTable(t)
		spoil(tab)
		if err := tab.Validate(); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	b, err := columnTable(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(b[4:], 1)
	if _, err := DecodeTable(b); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), "one of kind columns has version 2") {
		t.Errorf("columns in the older form: %v", err)
	}
}

// TestTypesOfTables: of a table that is sent, no more texts of types are read than a schema may have.
func TestTypesOfTables(t *testing.T) {
	var fields column.Schema
	for i := range 500 {
		fields = append(fields, column.Column{Name: fmt.Sprint("f", i), Type: column.Type{ID: column.U8}})
	}
	for n, ok := range map[int]bool{32: true, column.MaxColumns: false} {
		tab := &Table{}
		for i := range n {
			tab.Columns = append(tab.Columns, column.Column{Name: fmt.Sprint("c", i), Type: column.StructOf(fields)})
		}
		b := appendColumns(nil, tab)
		d := decoder{rest: b, size: len(b)}
		if got := d.columns(); (d.err == nil) != ok || ok && len(got) != n || len(got) > 100 {
			t.Errorf("of %d columns, %d bytes, %d were read, and then %v", n, len(b), len(got), d.err)
		}
	}
}
