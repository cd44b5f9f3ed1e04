package dataset

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// wide is a row whose text is in the file once, in a dictionary.
type wide struct {
	A string `parquet:"a,dict"`
	B string `parquet:"b,dict"`
	C string `parquet:"c,dict"`
	D string `parquet:"d,dict"`
	E string `parquet:"e,dict"`
	F string `parquet:"f,dict"`
}

func parquetInput[T any](t *testing.T, rows []T) Input {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[T](f)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	in, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// loaded loads files as columns, and keeps them nowhere.
func loaded(t testing.TB, o Options, ins ...Input) (*Plan, error) {
	t.Helper()
	p, err := ScanFiles(t.Context(), ins, o)
	if err == nil {
		err = p.Fill(t.Context(), Discard{})
	}
	return p, err
}

// A small file can hold columns of any size; what it takes is counted while a chunk is read, not after it.
func TestParquetMemory(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	rows := make([]wide, 100)
	for i := range rows {
		rows[i] = wide{text, text, text, text, text, text}
	}
	in := parquetInput(t, rows)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := loaded(t, Options{Format: Parquet, MemoryBytes: 16 << 20}, in)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "with fewer columns, or less text in a value") {
		t.Error(err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 256<<20 {
		t.Errorf("%d MiB were allocated of 16 that were allowed", taken>>20)
	}
}

// Values of great width take the memory of a chunk before one of them is there: it has fewer rows then.
func TestParquetWideValues(t *testing.T) {
	type row struct {
		A [30000]byte  `parquet:"a"`
		B *[30000]byte `parquet:"b,optional"`
	}
	rows := make([]row, 1500)
	rows[1499].A[7] = 9
	p, err := loaded(t, Options{Format: Parquet}, parquetInput(t, rows))
	if err != nil {
		t.Fatal(err)
	}
	if p.Rows != 1500 || len(p.Parts[0]) < 2 {
		t.Errorf("%d rows in %+v", p.Rows, p.Parts)
	}
}
