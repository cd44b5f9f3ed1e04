package invoke

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/schema"
)

func ready(t *testing.T, name string) *image.Image {
	t.Helper()
	img, err := xrdma.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestVertices: a list of vertices is held against the graph before anything
// is sent; elements would pass over what they do not hold.
func TestVertices(t *testing.T) {
	graph := &cluster.Table{Name: "web", Kind: cluster.CSR, Rows: 3}
	records := &cluster.Table{Name: "log", Kind: cluster.Records, Rows: 3, Schema: schema.Schema{Fields: []schema.Field{{Name: "a", Type: schema.U8}}}}
	for _, c := range []struct {
		table *cluster.Table
		text  string
		says  string // "": it is taken
	}{
		{graph, "0", ""}, {graph, "0,2", ""}, {graph, " 0 ,\t1\n2,", ""}, {records, "17", "needs a graph; log holds records"}, {nil, "a", ""},
		{graph, "a", `"a" is not a vertex number (0 to 2)`}, {graph, "0,b", `"b"`}, {graph, "1;2", `"1;2"`}, {graph, "-1", `"-1"`},
		{graph, "3", "there is no vertex 3: web has 3"}, {graph, "99999999999999999999", "not a vertex number"},
		{graph, "", "names no vertex"}, {graph, " ,", "names no vertex"},
	} {
		for _, name := range []string{"closure", "reach", "dependents", "inside"} {
			r := &Request{Image: ready(t, name), Table: c.table, Args: map[string]string{"vertices": c.text}}
			_, err := r.payload()
			if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s of %q: %v", name, c.text, err)
			}
		}
	}
}

// TestPayloadFits: what cannot travel is refused with the way out, to the byte.
func TestPayloadFits(t *testing.T) {
	for size, good := range map[int]bool{0: true, travel.MaxDataBytes: true, travel.MaxDataBytes + 1: false} {
		r := &Request{Image: ready(t, "echo"), Payload: make([]byte, size)}
		if _, err := r.payload(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "60416") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	r := &Request{Image: ready(t, "closure"), Args: map[string]string{"vertices": strings.Repeat("1,", travel.MaxDataBytes)}}
	if _, err := r.payload(); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "mem load") {
		t.Errorf("arguments: %v", err)
	}
}

// TestRawAnswers: bytes without a schema have two ways to be written.
func TestRawAnswers(t *testing.T) {
	a := &Answer{Raw: []byte("hello")}
	for format, want := range map[schema.Format]string{schema.FormatRaw: "hello", schema.FormatJSON: "{\"raw\":\"aGVsbG8=\"}\n",
		schema.FormatCSV: "", schema.FormatNDJSON: "", schema.FormatTable: ""} {
		var out bytes.Buffer
		err := a.Write(&out, format)
		if out.String() != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
		if early := CheckFormat(ready(t, "echo"), format); (early == nil) != (want != "") {
			t.Errorf("%s: known beforehand: %v", format, early)
		}
		if err := CheckFormat(ready(t, "sum"), format); err != nil {
			t.Error(err)
		}
	}
}
