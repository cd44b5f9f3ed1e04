package dataset

import (
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	writer "github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
)

// loadsOrSays loads what anybody wrote: what is taken makes parts that are right.
func loadsOrSays(t *testing.T, format Format, data []byte) {
	o := Options{Format: format, SkipBad: 2, MemoryBytes: 16 << 20, Spread: Spread{Elements: 2}}
	p, err := Scan(t.Context(), NewText("x", data), o)
	if err != nil {
		return
	}
	var sink Buffers
	if err := p.Fill(t.Context(), &sink); err != nil {
		return
	}
	for e := range p.Parts {
		for i := range p.Parts[e] {
			if _, err := part.Open(sink.Memory(uint32(e), cluster.PartWindows*i+cluster.PartFile)); err != nil {
				t.Error(err)
			}
		}
	}
}

func FuzzParquetColumns(f *testing.F) {
	for _, rows := range []string{nestedRows, `{"a":1,"b":"x","c":true,"d":1.5,"e":"2026-01-01"}` + "\n{}\n"} {
		_, file, err := loadedAs(f, writer.Parquet, 1, Options{Format: NDJSON}, text("x.ndjson", rows))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(file))
	}
	for _, file := range smallFiles(f, "*") {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, b []byte) { loadsOrSays(t, Parquet, b) })
}

// Its corpus has files and streams of pyarrow and Polars.
func FuzzArrowColumns(f *testing.F) {
	f.Add(arrowStream(f))
	f.Fuzz(func(t *testing.T, b []byte) { loadsOrSays(t, Arrow, b) })
}

func FuzzNDJSONColumns(f *testing.F) {
	f.Add([]byte(nestedRows))
	f.Add([]byte(`{"a":[1,{"b":[]}]}` + "\n" + `{"a":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) { loadsOrSays(t, NDJSON, b) })
}

func FuzzCSVColumns(f *testing.F) {
	f.Add([]byte("a,b\n1,\"x\ny\"\n,2026-01-01\n"))
	f.Fuzz(func(t *testing.T, b []byte) { loadsOrSays(t, CSV, b) })
}
