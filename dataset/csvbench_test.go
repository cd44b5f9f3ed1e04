package dataset

import (
	"bytes"
	"fmt"
	"testing"
)

// logText is CSV as logs have it: rows of six columns.
func logText(rows int) []byte {
	var b bytes.Buffer
	b.WriteString("id,when,status,ms,host,path\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,2026-03-%02dT%02d:%02d:%02d.%03dZ,%d,%d.%03d,host%03d.example.com,/api/v1/item/%d\n",
			i, i%28+1, i%24, i%60, i%59, i%1000, 200+i%7*50, i%100, i%1000, i%200, i*7919%100003)
	}
	return b.Bytes()
}

// BenchmarkCSVColumns reads CSV into parts. What it allocates is buffers of chunks, nothing for a row.
func BenchmarkCSVColumns(b *testing.B) {
	const rows = 400_000
	data := logText(rows)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		p, err := loaded(b, Options{Format: CSV}, NewText("x.csv", data))
		if err != nil || p.Rows != rows {
			b.Fatal(p, err)
		}
	}
}
