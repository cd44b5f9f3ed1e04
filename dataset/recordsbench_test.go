package dataset

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"testing"
)

func BenchmarkCSV(b *testing.B) {
	var text bytes.Buffer
	for i := range 50000 {
		fmt.Fprintf(&text, "192.168.%d.%d,/some/path/%d,%d,%d,%.3f\n", i%256, i%100, i, 200+i%300, i*37, float64(i)/7)
	}
	in := NewText("bench", text.Bytes())
	o := Options{Format: CSV, Schema: mustSchema(b, "host:str,path:str,status:u16,bytes:u64,ms:f32"), Spread: Spread{Elements: 4}}
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(in.Size())
		for b.Loop() {
			if p, err := Scan(context.Background(), in, o); err != nil || p.Fill(context.Background(), Discard{}) != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		b.SetBytes(in.Size())
		for b.Loop() {
			load(b, in, o, true)
		}
	})
	b.Run("encoding-csv-split-only", func(b *testing.B) {
		b.SetBytes(in.Size())
		for b.Loop() {
			r := csv.NewReader(bytes.NewReader(text.Bytes()))
			r.ReuseRecord = true
			for {
				if _, err := r.Read(); err == io.EOF {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkNDJSON(b *testing.B) {
	var text bytes.Buffer
	for i := range 50000 {
		fmt.Fprintf(&text, `{"host":"192.168.%d.%d","path":"/some/path/%d","status":%d,"bytes":%d,"ms":%.3f}`+"\n", i%256, i%100, i, 200+i%300, i*37, float64(i)/7)
	}
	in := NewText("bench", text.Bytes())
	o := Options{Format: NDJSON, Schema: mustSchema(b, "host:str,path:str,status:u16,bytes:u64,ms:f32")}
	b.SetBytes(in.Size())
	for b.Loop() {
		if p, err := Scan(context.Background(), in, o); err != nil || p.Fill(context.Background(), Discard{}) != nil {
			b.Fatal(err)
		}
	}
}
