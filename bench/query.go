package bench

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/child"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

//go:embed native/query.py
var queryScript string

const (
	// queryRows is how many rows are asked of by default; half as many groups are the most.
	queryRows  = 4 << 20
	queryTurns = 7
	// queryEqual is how many random questions both sides answer, queryEqualFew of a run with few rounds.
	queryEqual    = 500
	queryEqualFew = 12
	// queryFew is the most rows that random questions are asked of: of 4 Mi, 500 questions took both sides minutes.
	queryFew = 256 << 10
)

// queryColumns are those that questions are asked of.
func queryColumns() column.Schema {
	of := func(name string, id column.ID, nullable bool) column.Column {
		return column.Column{Name: name, Type: column.Type{ID: id}, Nullable: nullable}
	}
	return column.Schema{of("v", column.I64, false), of("status", column.U16, false), of("host", column.I32, false), of("k", column.I64, false),
		of("ms", column.F64, true), of("level", column.UTF8, true)}
}

// queryPart makes a part of so many rows; groups bounds k.
func queryPart(rows, groups int, seed uint64) (*part.Draft, error) {
	r := rand.New(rand.NewPCG(seed, 15))
	columns := queryColumns()
	d := part.NewDraft()
	levels := []string{"info", "warn", "error", "äußerst"}
	for ; rows > 0; rows -= part.ChunkRows {
		n := min(rows, part.ChunkRows)
		b := make([]*part.Builder, len(columns))
		for i, c := range columns {
			b[i] = part.NewBuilder(c.Type, n)
		}
		for range n {
			b[0].Bits(r.Uint64N(1 << 40))
			b[1].Bits(uint64(100*(1+r.IntN(5)) + r.IntN(60)))
			b[2].Bits(r.Uint64N(100))
			b[3].Bits(r.Uint64N(uint64(groups)))
			if r.IntN(16) == 0 {
				b[4].Null()
				b[5].Null()
				continue
			}
			b[4].Float(float64(r.IntN(8000)) / 8)
			if err := b[5].Bytes([]byte(levels[r.IntN(len(levels))])); err != nil {
				return nil, err
			}
		}
		arrays := make([]arrow.Array, len(b))
		for i := range b {
			arrays[i] = b[i].Finish()
		}
		d.Add(arrays, 0, n)
	}
	return d, d.Seal(columns)
}

// sharedPart is where another process of this machine finds a part's memory.
type sharedPart struct {
	PID, FD int
	Size    uint64
}

// serveColumns lends this server's part of the columns, and one of few rows.
func (s *station) serveColumns(spec *role, info *serverInfo) (err error) {
	seed := spec.Seed + uint64(spec.Index)
	if info.Columns, err = s.lendColumns(spec.Rows/spec.Count, spec.Rows/2, seed); err == nil {
		info.Few, err = s.lendColumns(fewRows(spec.Rows)/spec.Count, spec.Rows/2, seed+1<<32)
	}
	return err
}

// fewRows is how many rows random questions are asked of.
func fewRows(rows int) int { return min(rows, queryFew) }

// columns are windows with a part and its directory, and where another process finds the part.
type columns struct {
	Windows []lent
	Part    sharedPart
}

func (s *station) lendColumns(rows, groups int, seed uint64) (out columns, err error) {
	d, err := queryPart(rows, groups, seed)
	if err != nil {
		return out, err
	}
	defer d.Release()
	var file bytes.Buffer
	file.Grow(int(d.Size()))
	if err := d.Write(&file); err != nil {
		return out, err
	}
	p, err := part.Open(file.Bytes())
	if err != nil {
		return out, err
	}
	for i, b := range [][]byte{file.Bytes(), p.Directory()} {
		seg, err := s.el.NewSegment(uint64(len(b)), fabric.Writable)
		if err != nil {
			return out, err
		}
		copy(seg.Bytes(), b)
		key, err := seg.Key(fabric.RightRead)
		if err != nil {
			return out, err
		}
		out.Windows = append(out.Windows, lent{key.Append(nil), uint64(len(b))})
		if fd, _ := seg.FD(); i == 0 {
			out.Part = sharedPart{os.Getpid(), fd, uint64(len(b))}
		}
	}
	return out, nil
}

// columnsTable is the shard table of so many rows that servers lend.
func (c *client) columnsTable(name string, rows int, of func(*serverInfo) columns) (*cluster.Table, error) {
	each := rows / c.spec.Count
	t := &cluster.Table{Name: name, Version: 1, Kind: cluster.Columns, Columns: queryColumns(),
		Sharding: cluster.Sharding{Kind: cluster.Block, Elements: uint32(len(c.spec.Servers)), Rows: uint64(each * c.spec.Count)}}
	for _, info := range c.spec.Servers {
		shard := cluster.Shard{Element: info.Name, Incarnation: info.Incarnation, Addrs: []string{info.Addr}}
		for _, w := range of(&info).Windows {
			key, err := fabric.DecodeKey(w.Key)
			if err != nil {
				return nil, err
			}
			shard.Windows = append(shard.Windows, cluster.Window{Key: key, Size: w.Size})
		}
		shard.Parts = []cluster.Part{{Rows: uint64(each), Chunks: uint32((each + part.ChunkRows - 1) / part.ChunkRows)}}
		t.Shards = append(t.Shards, shard)
	}
	t.FillRows()
	return t, nil
}

// inquiry is a query, and the same in SQL.
type inquiry struct {
	name string
	query.Query
	sql string
}

var inquiries = []inquiry{
	{"sum", query.Query{Agg: []string{"s=sum(v)"}}, "select sum(v) from t"},
	{"filter", query.Query{Where: "status >= 500", Agg: []string{"s=sum(v)"}}, "select sum(v) from t where status >= 500"},
	{"group100", query.Query{Group: []string{"host"}, Agg: []string{"n=count()", "s=sum(v)"}, Order: []string{"host"}}, "select host, count(*), sum(v) from t group by host order by host"},
	{"group2m", query.Query{Group: []string{"k"}, Agg: []string{"n=count()"}, Order: []string{"-n", "k"}, Limit: 10}, "select k, count(*) as n from t group by k order by n desc, k limit 10"},
}

// duck is DuckDB in a process of its own, on the servers' CPU and on their memory.
type duck struct{ p *child.Process }

// queryWord is what DuckDB's process is told, and what it answers.
type queryWord struct {
	Parts []sharedPart    `json:",omitempty"` // of table t
	Few   []sharedPart    `json:",omitempty"` // of table few
	SQL   string          `json:",omitempty"`
	Rows  json.RawMessage `json:",omitempty"` // the answer that it is to compare its own with

	Version string  `json:",omitempty"`
	Ns      float64 `json:",omitempty"`
	Equal   bool
	Error   string `json:",omitempty"`
}

// startDuck starts DuckDB, if there is one.
func (c *client) startDuck() (*duck, string, error) {
	var p *child.Process
	err := onCPUs(c.spec.ServerCPU, func() (err error) {
		p, err = child.Start(exec.CommandContext(c.ctx, c.spec.Python, "-c", queryScript))
		return err
	})
	if err != nil {
		return nil, "", err
	}
	d := &duck{p}
	w := queryWord{}
	for _, info := range c.spec.Servers {
		w.Parts, w.Few = append(w.Parts, info.Columns.Part), append(w.Few, info.Few.Part)
	}
	got, err := d.tell(w)
	if err != nil {
		p.End()
		return nil, "", fmt.Errorf("bench: no DuckDB to compare with: %w: give a Python that has duckdb and pyarrow with --python", err)
	}
	return d, got.Version, nil
}

func (d *duck) tell(w queryWord) (got queryWord, err error) {
	_ = d.p.Tell(w) // if it fails the process has ended, and Hear says why
	if err = d.p.Hear(&got); err == nil && got.Error != "" {
		err = errors.New(got.Error)
	}
	return got, err
}

// ask asks the servers; rows is the answer as JSON.
func (c *client) askColumns(t *cluster.Table, q query.Query) (rows json.RawMessage, took time.Duration, err error) {
	start := time.Now()
	found, err := invoke.Query(c.ctx, c.rt, t, q)
	if took = time.Since(start); err != nil {
		return nil, 0, err
	}
	var b bytes.Buffer
	err = found.Write(&b, batch.JSON)
	return b.Bytes(), took, err
}

// query measures questions to columns beside DuckDB on the same memory.
func (c *client) query() error {
	t, err := c.columnsTable("query", c.spec.Rows, func(s *serverInfo) columns { return s.Columns })
	if err != nil {
		return err
	}
	few, err := c.columnsTable("few", fewRows(c.spec.Rows), func(s *serverInfo) columns { return s.Few })
	if err != nil {
		return err
	}
	if c.spec.Workers > 0 {
		return c.queryWorkers(t)
	}
	d, version, err := c.startDuck()
	if err != nil {
		return err
	}
	defer d.p.End()
	turns, random := queryTurns, queryEqual
	if c.spec.Rounds > 0 {
		turns, random = c.spec.Rounds, queryEqualFew
	}
	equal := 0
	for i, q := range inquiries {
		c.say(q.name, float64(i)/float64(2*len(inquiries)))
		same, err := c.compareQuestion(t, d, q, turns)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		equal += same
	}
	seed := c.rand.Uint64()
	ask := asker{rand.New(rand.NewPCG(seed, 15))}
	for i := range random {
		c.say("random questions", 0.5+float64(i)/float64(2*random))
		q := ask.question()
		rows, _, err := c.askColumns(few, q.Query)
		if err != nil {
			return fmt.Errorf("seed %d: %+v: %w", seed, q.Query, err)
		}
		got, err := d.tell(queryWord{SQL: q.sql, Rows: rows})
		if err != nil {
			return fmt.Errorf("seed %d: %s: %w", seed, q.sql, err)
		}
		if got.Equal {
			equal++
		} else {
			c.r.Set("differs", fmt.Sprintf("seed %d: %s", seed, q.sql))
		}
	}
	c.r.Set("equal", equal)
	c.r.Set("questions", len(inquiries)+random)
	c.r.Set("rows", c.spec.Rows)
	c.r.Set("duckdb", version)
	return nil
}

// compareQuestion has both sides answer in turns; same is 1 if they agree.
func (c *client) compareQuestion(t *cluster.Table, d *duck, q inquiry, turns int) (same int, err error) {
	var ours, theirs samples
	peak := 0.0
	for turn := range turns + 1 {
		// The first turn, in which the function is compiled, counts for the answer only.
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forgets the peak; where it cannot, the peak is that of the whole run
		rows, took, err := c.askColumns(t, q.Query)
		if err != nil {
			return 0, err
		}
		if peak, err = residentPeak(); err != nil {
			return 0, err
		}
		got, err := d.tell(queryWord{SQL: q.sql, Rows: rows})
		if err != nil {
			return 0, err
		}
		if turn == 0 {
			if got.Equal {
				same = 1
			}
			continue
		}
		ours, theirs = append(ours, float64(took)), append(theirs, got.Ns)
	}
	c.r.Set(q.name+"_ms", ours.p(0.5)/1e6)
	c.r.Set(q.name+"_duckdb_ms", theirs.p(0.5)/1e6)
	c.r.Set(q.name+"_over_duckdb", theirs.p(0.5)/ours.p(0.5))
	if q.Limit > 0 {
		c.r.Set("ms", ours.p(0.5)/1e6)
		c.r.Set("client_mib_peak", peak)
	}
	return same, nil
}

// residentPeak is the most memory that this process had at once, MiB, without what it maps of files and shares: its own code above all.
func residentPeak() (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	mib := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		var kib float64
		name, rest, _ := strings.Cut(line, ":")
		if n, _ := fmt.Sscanf(rest, "%f kB", &kib); n == 1 {
			mib[name] = kib / 1024
		}
	}
	if mib["VmHWM"] == 0 {
		return 0, errors.New("bench: /proc/self/status has no VmHWM")
	}
	return mib["VmHWM"] - mib["RssFile"] - mib["RssShmem"], nil
}
