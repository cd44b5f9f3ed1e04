package bench

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

const (
	// MaxGiB bounds a large scan: a shard has as much, nearly (dataset.MaxShardBytes).
	MaxGiB = 10
	// largeChunks is how many chunks a part of it has: 448 MiB, as large as parts get.
	largeChunks = 448
	largeTurns  = 5
	// largeBits are those of a value: sums of them all fit into 64 bits.
	largeBits = 31
	// besideBytes is what the benchmark needs besides the shard: a part in the making, the function's memory, and the programs.
	besideBytes = 3 << 29
)

// validateLarge looks at GiB.
func (c *Config) validateLarge() error {
	if c.GiB < 0 || c.GiB > MaxGiB {
		return fmt.Errorf("bench: a scan of %d GiB: between 1 and %d, or 0 for 64 MiB beside native C", c.GiB, MaxGiB)
	}
	return nil
}

// largeValue is row i's value.
func largeValue(i, seed uint64) uint64 { // splitmix64
	z := (i + seed) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) >> (64 - largeBits)
}

// scanLarge measures a question to one shard that does not fit into a function's memory. What the answer is to be is computed from how the
// values were made, not from what lies in the shard.
func (c *client) scanLarge() error {
	bytes, seed := uint64(c.spec.GiB)<<30, c.rand.Uint64()
	if has, ok := memoryAvailable(); ok && has < bytes+besideBytes {
		return fmt.Errorf("bench: a scan of %d GiB takes %d MiB of memory, %d are available: give a smaller --gib", c.spec.GiB, (bytes+besideBytes)>>20, has>>20)
	}
	st, err := newStation(&role{Name: "scan", scheme: c.spec.scheme, Policy: c.spec.Policy}, true)
	if err != nil {
		return err
	}
	defer st.close()
	rows := bytes / 8
	shard := cluster.Shard{Element: "scan", Incarnation: st.el.Incarnation(), Addrs: []string{c.spec.scheme.Example}}
	schema := column.Schema{{Name: "v", Type: column.Type{ID: column.I64}}}
	for first := uint64(0); first < rows; {
		c.say("making columns", float64(first)/float64(rows))
		n := min(largeChunks*part.ChunkRows, rows-first)
		windows, chunks, err := st.largePart(schema, first, n, seed)
		if err != nil {
			return err
		}
		shard.Windows = append(shard.Windows, windows...)
		shard.Parts = append(shard.Parts, cluster.Part{Rows: n, Chunks: chunks})
		first += n
	}
	t := &cluster.Table{Name: "scan", Version: 1, Kind: cluster.Columns, Columns: schema, Shards: []cluster.Shard{shard},
		Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1, Rows: rows}}
	t.FillRows()
	turns, right := largeTurns, true
	if c.spec.Rounds > 0 {
		turns = c.spec.Rounds
	}
	var took samples
	for turn := range turns + 1 {
		c.say("scans", float64(turn)/float64(turns+1))
		bound := c.rand.Uint64() >> (64 - largeBits)
		start := time.Now()
		found, err := invoke.Query(c.ctx, st.rt, t, query.Query{Where: fmt.Sprintf("v < %d", bound), Agg: []string{"n=count()", "s=sum(v)"}})
		if turn > 0 { // in the first one the function is compiled
			took = append(took, float64(time.Since(start)))
		}
		if err != nil {
			return err
		}
		n, sum := largeTruth(rows, bound, seed)
		right = right && found.Rows == 1 && found.Arrays[0].ValueStr(0) == strconv.FormatUint(n, 10) && found.Arrays[1].ValueStr(0) == strconv.FormatUint(sum, 10)
	}
	c.r.Set("scan_bytes", bytes)
	c.r.Set("parts", len(shard.Parts))
	c.r.Set("right", right)
	c.r.Set("scan_ms_p50", took.p(0.5)/1e6)
	c.r.Set("gbytes_per_s", float64(bytes)/took.p(0.5))
	return nil
}

// largeTruth is how many of the values are below a bound, and their sum.
func largeTruth(rows, bound, seed uint64) (n, sum uint64) {
	for i := range rows {
		if v := largeValue(i, seed); v < bound {
			n, sum = n+1, sum+v
		}
	}
	return n, sum
}

// largePart lends a part of these rows.
func (s *station) largePart(schema column.Schema, first, rows, seed uint64) (windows []cluster.Window, chunks uint32, err error) {
	d := part.NewDraft()
	defer d.Release()
	for end := first + rows; first < end; {
		n := min(part.ChunkRows, end-first)
		values := make([]byte, 8*n)
		for i := range n {
			binary.LittleEndian.PutUint64(values[8*i:], largeValue(first+i, seed))
		}
		data := array.NewData(arrow.PrimitiveTypes.Int64, int(n), []*memory.Buffer{nil, memory.NewBufferBytes(values)}, nil, 0, 0)
		d.Add([]arrow.Array{array.NewInt64Data(data)}, 0, int(n))
		data.Release()
		first += n
	}
	if err := d.Seal(schema); err != nil {
		return nil, 0, err
	}
	lend := func(size uint64, fill func(b []byte) error) error {
		seg, err := s.el.NewSegment(size, fabric.Writable)
		if err != nil {
			return err
		}
		if err := fill(seg.Bytes()); err != nil {
			return err
		}
		key, err := seg.Key(fabric.RightRead)
		windows = append(windows, cluster.Window{Key: key, Size: size})
		return err
	}
	var directory []byte
	err = lend(d.Size(), func(b []byte) error {
		if err := d.Write(&filler{b}); err != nil {
			return err
		}
		p, err := part.Open(b)
		if err == nil {
			directory = p.Directory()
		}
		return err
	})
	if err == nil {
		err = lend(uint64(len(directory)), func(b []byte) error { copy(b, directory); return nil })
	}
	return windows, d.Chunks(), err
}

// filler writes into memory that has as much room as there will be.
type filler struct{ left []byte }

func (f *filler) Write(p []byte) (int, error) {
	n := copy(f.left, p)
	f.left = f.left[n:]
	return n, nil
}

// memoryAvailable is what the kernel says that can be had.
func memoryAvailable() (bytes uint64, ok bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, found := strings.CutPrefix(lines.Text(), "MemAvailable:"); found {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
