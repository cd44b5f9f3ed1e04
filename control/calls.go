package control

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
	"github.com/wherry-fabric/wherry/schema"
)

// Version is the protocol's; it rises when an old program would misunderstand a new one.
const Version = 1

// The calls that a node serves.
const (
	CallInfo         = "wherry.info"          // InfoRequest → Info
	CallNameConflict = "wherry.name-conflict" // NameConflict → Nothing; members only
	CallStatus       = "wherry.status"        // StatusRequest → Status; capability read, or admin for all of it
	CallExplain      = "wherry.fn.explain"    // ExplainRequest → Explanation; capability inject
	CallBegin        = "wherry.load.begin"    // BeginRequest → BeginReply
	CallAlloc        = "wherry.load.alloc"    // AllocRequest → Nothing
	CallFill         = "wherry.load.fill"     // FillRequest → Nothing
	CallFile         = "wherry.load.file"     // FileRequest → FileReply, with Progress as notes
	CallPrepare      = "wherry.load.prepare"  // PrepareRequest → Nothing
	CallCommit       = "wherry.load.commit"   // LoadRequest → Nothing
	CallAbort        = "wherry.load.abort"    // LoadRequest → Nothing
	CallOutcome      = "wherry.load.outcome"  // LoadRequest → OutcomeReply; members only
	CallList         = "wherry.data.list"     // Nothing → ListReply
	CallStat         = "wherry.data.stat"     // NameRequest → Entry
	CallTable        = "wherry.data.table"    // TableRequest → TableReply
	CallRemove       = "wherry.data.remove"   // NameRequest → Nothing
	CallGrant        = "wherry.data.grant"    // GrantRequest → Nothing
)

// MaxBodyBytes bounds a request, of whatever call: a table at its largest, in base64. Most have far less (ruleOf). Answers are as large as package rpc allows.
const MaxBodyBytes = 12 << 20

// NameConflict tells a node of another that has its name.
type NameConflict struct {
	Name          string              `json:"name"`
	Incarnation   cluster.Incarnation `json:"incarnation"`
	Addrs         []string            `json:"addrs"`
	UptimeMs      int64               `json:"uptime_ms"`
	StartedUnixMs int64               `json:"started_unix_ms"`
}

// Nothing is a body without members.
type Nothing struct{}

// InfoRequest says who asks.
type InfoRequest struct {
	Version int `json:"version"`
}

// Info is what a node says of itself.
type Info struct {
	Version       int                 `json:"version"` // of the protocol
	Program       string              `json:"program"` // the program's version, for people
	Name          string              `json:"name"`
	Incarnation   cluster.Incarnation `json:"incarnation"`
	Addrs         []string            `json:"addrs"`
	Transports    []string            `json:"transports"`
	LentBytes     int64               `json:"lent_bytes"`
	LimitBytes    int64               `json:"limit_bytes"`
	Datasets      int                 `json:"datasets"`
	UptimeMs      int64               `json:"uptime_ms"`
	StartedUnixMs int64               `json:"started_unix_ms"` // by the node's own clock, and the same at each asking
	Stopping      bool                `json:"stopping,omitempty"`
	Principal     string              `json:"principal"`          // the asker's, as the node sees it
	Caps          string              `json:"caps"`               // what the asker may do
	Forms         []string            `json:"forms,omitempty"`    // of code that the node runs
	Managers      []string            `json:"managers,omitempty"` // of the cluster, as far as the node knows
	Peers         []Peer              `json:"peers"`
}

// Peer is another member as a node sees it.
type Peer struct {
	Name        string              `json:"name"`
	Addrs       []string            `json:"addrs"`
	Connected   bool                `json:"connected"`
	Incarnation cluster.Incarnation `json:"incarnation,omitempty"`
	Error       string              `json:"error,omitempty"` // why it is not connected
}

// ExplainRequest asks in which form a function runs at a node.
type ExplainRequest struct {
	ID   string `json:"id"`   // the image's identity, 64 hex digits
	Form string `json:"form"` // that was asked for: auto, wasm, bitcode or elf
}

// Explanation says in which form a function runs at a node, as was chosen there last.
type Explanation struct {
	Known bool `json:"known"` // else the function has not come there, or its image is there no more
	Chosen
	// Descendants came from the function there, the newest first: those that calls of the asker made or ran, for an admin everybody's. No answer has more than 16.
	Descendants     []Descendant `json:"descendants,omitempty"`
	DescendantsLeft int          `json:"descendants_left,omitempty"` // that are not in the list
}

// Descendant is a function that came from another one at a node.
type Descendant struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Kind   string `json:"kind"`   // derived: of its parent by constants; assembled: by a run of its parent
	Parent string `json:"parent"` // the identity of what it came from itself
	Chosen
}

// Chosen is in which form a function runs.
type Chosen struct {
	Form    string        `json:"form,omitempty"` // none: it cannot run there
	Triple  string        `json:"triple,omitempty"`
	Tier    string        `json:"tier,omitempty"` // how its code is made to run
	Why     string        `json:"why,omitempty"`
	Refused []RefusedCode `json:"refused"` // the image's other code, and why that does not run
}

// RefusedCode is code that does not run.
type RefusedCode struct {
	Form   string `json:"form"`
	Triple string `json:"triple,omitempty"`
	Why    string `json:"why"`
}

// LoadID names a load: random, chosen by the client, 32 hex digits.
type LoadID string

// BeginRequest starts a load at one node.
type BeginRequest struct {
	Load    LoadID `json:"load"`
	Name    string `json:"name"` // of the dataset, reserved here until the load ends
	Replace bool   `json:"replace,omitempty"`
	// Append is the version that the load adds parts to; 0: it makes a new dataset.
	Append uint64 `json:"append,omitempty"`
	// Staging is a key to the client's memory that CallFill reads from; none
	// if the load needs no fills.
	Staging []byte `json:"staging,omitempty"`
}

// BeginReply says what the load has to know.
type BeginReply struct {
	NextVersion uint64              `json:"next_version"` // lowest version that the node can take
	Incarnation cluster.Incarnation `json:"incarnation"`
	Addrs       []string            `json:"addrs"` // for the shard table
	FreeBytes   int64               `json:"free_bytes"`
	LoadTimeMs  int64               `json:"load_time_ms"` // how long the load may be idle
	// Holders are the elements of the version that will be replaced.
	Holders []cluster.Member `json:"holders,omitempty"`
}

// AllocRequest makes the windows of the load's shard, all zeros.
type AllocRequest struct {
	Load     LoadID       `json:"load"`
	Kind     cluster.Kind `json:"kind,omitempty"` // with as many windows as its Arrow file's has, they lie in one
	Sizes    []uint64     `json:"sizes"`
	Writable bool         `json:"writable,omitempty"`
}

// FillRequest has the node fetch bytes from the load's staging memory into windows.
type FillRequest struct {
	Load   LoadID  `json:"load"`
	Pieces []Piece `json:"pieces"` // at most MaxPieces; none: the load only is not idle
}

// MaxPieces bounds the pieces of one FillRequest.
const MaxPieces = 64

// Piece is a range of a window, and where its bytes are.
type Piece struct {
	Window int    `json:"window"`
	Offset uint64 `json:"offset"` // in the window
	From   uint64 `json:"from"`   // in the staging memory
	Size   uint64 `json:"size"`
}

// FileRequest has the node load a file of its own into the load's shard.
type FileRequest struct {
	Load     LoadID      `json:"load"`
	Path     string      `json:"path"` // absolute, or below a data root; a pattern (*, ?, […]) means all files that it names
	Format   FileOptions `json:"format"`
	Writable bool        `json:"writable,omitempty"`
	DryRun   bool        `json:"dry_run,omitempty"` // the file is read and nothing is kept
	// Join is the first part of the version appended to whose rows are written again, in front of the file's; the parts before it are kept.
	Join int `json:"join,omitempty"`
}

// FileOptions are those of dataset.Options that concern a file.
type FileOptions struct {
	Format       string         `json:"format,omitempty"` // "": by the file's name
	Schema       *schema.Schema `json:"schema,omitempty"`
	Packed       bool           `json:"packed,omitempty"`
	Types        []schema.Type  `json:"types,omitempty"`
	Header       bool           `json:"header,omitempty"`
	Comma        string         `json:"comma,omitempty"` // one byte
	EmptyIsZero  bool           `json:"empty_is_zero,omitempty"`
	SkipBad      int64          `json:"skip_bad,omitempty"`
	Names        bool           `json:"names,omitempty"`
	ExtraColumns bool           `json:"extra_columns,omitempty"`
	Weights      bool           `json:"weights,omitempty"`
	LineBytes    int            `json:"line_bytes,omitempty"`
	NoHeader     bool           `json:"no_header,omitempty"`
	ColumnTypes  column.Schema  `json:"column_types,omitempty"`
	Nulls        []string       `json:"nulls,omitempty"`
	Like         column.Schema  `json:"like,omitempty"` // columns that the file must have
}

// FileReply is what was found in the file.
type FileReply struct {
	Kind    cluster.Kind   `json:"kind"`
	Schema  schema.Schema  `json:"schema"`
	Columns column.Schema  `json:"columns,omitempty"`
	Parts   []cluster.Part `json:"parts,omitempty"` // of columns
	Rows    uint64         `json:"rows"`
	Edges   uint64         `json:"edges,omitempty"`
	Sizes   []uint64       `json:"sizes"`
	Bad     int64          `json:"bad,omitempty"` // lines left out
	// BadLines are the first of them, at most dataset.MaxBadShown. Their Node is "".
	BadLines []BadLine `json:"bad_lines,omitempty"`
	// Stats, Files and Inferred are of columns.
	Stats    []part.Stats        `json:"stats,omitempty"`
	Files    []dataset.FileStats `json:"files,omitempty"`
	Inferred *dataset.Inference  `json:"inferred,omitempty"`
	Unmet    []string            `json:"unmet,omitempty"`  // as in dataset.Plan
	Joined   bool                `json:"joined,omitempty"` // parts from FileRequest.Join on were written again
}

// BadLine is a line that a load left out, and why.
type BadLine struct {
	Node   string `json:"node,omitempty"` // that read the file; "": the client
	File   string `json:"file"`
	Line   int64  `json:"line"` // from 1; of raw records the record's number, from 0
	Column string `json:"column,omitempty"`
	Error  string `json:"error"` // the whole sentence, which names file, line and column too
}

// PhaseWait is the phase of a load that waits for others to end; else a Progress has a dataset.Phase.
const PhaseWait = "wait"

// Progress is a note on a load.
type Progress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // -1: not known
}

// PrepareRequest shows the node the shard table, without keys.
type PrepareRequest struct {
	Load  LoadID `json:"load"`
	Table []byte `json:"table"` // encoded
}

// LoadRequest names a load.
type LoadRequest struct {
	Load LoadID `json:"load"`
}

// OutcomeReply says what has become of a load.
type OutcomeReply struct {
	// Committed: it is visible here. Otherwise it is not, and from now on never will be.
	Committed bool `json:"committed"`
}

// Entry is a dataset as one node knows it.
type Entry struct {
	Name    string            `json:"name"`
	Version uint64            `json:"version"`
	Owner   string            `json:"owner"`
	Rights  string            `json:"rights"` // the asker's
	Grants  map[string]string `json:"grants,omitempty"`
	Table   *cluster.Table    `json:"table"`
	// LentBytes is what the dataset takes at the node that answers; 0 if it holds no shard.
	LentBytes int64 `json:"lent_bytes"`
	Writable  bool  `json:"writable,omitempty"`
}

// Validate reports an entry that describes no dataset.
func (e *Entry) Validate() error {
	switch {
	case e.Table == nil:
		return fmt.Errorf("dataset %.64q without a shard table", e.Name)
	case e.Table.Name != e.Name || e.Table.Version != e.Version:
		return fmt.Errorf("dataset %.64q, version %d, with the shard table of %.64q, version %d", e.Name, e.Version, e.Table.Name, e.Table.Version)
	}
	return e.Table.Validate()
}

// ListReply is a node's datasets that the asker may see.
type ListReply struct {
	Entries []Entry `json:"entries"`
}

// Validate reports an entry that describes no dataset.
func (r *ListReply) Validate() error {
	for i := range r.Entries {
		if err := r.Entries[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

// NameRequest is about one dataset; a version other than 0 must be its version.
type NameRequest struct {
	Name    string `json:"name"`
	Version uint64 `json:"version,omitempty"`
}

// TableRequest asks for a dataset's table with keys to the windows of the node
// that is asked, good for Rights (all that the asker has, if empty).
type TableRequest struct {
	Name   string `json:"name"`
	Rights string `json:"rights,omitempty"`
}

// TableReply has the table; keys to other nodes' windows are zero.
type TableReply struct {
	Table  []byte `json:"table"`
	Rights string `json:"rights"` // what the keys allow, and no more
	Owner  string `json:"owner"`
}

// GrantRequest sets what a principal may do with a dataset; "none" takes it away.
type GrantRequest struct {
	Name   string `json:"name"`
	To     string `json:"to"` // cluster.Everyone for all
	Rights string `json:"rights"`
}

// Do makes a call: it encodes the request, and decodes the answer.
func Do[Reply any](ctx context.Context, p *rpc.Peer, ep *fabric.Endpoint, call string, req any) (*Reply, error) {
	return DoNotes[Reply](ctx, p, ep, call, req, nil)
}

// DoNotes is Do for calls that report progress.
func DoNotes[Reply any](ctx context.Context, p *rpc.Peer, ep *fabric.Endpoint, call string, req any, onProgress func(Progress)) (*Reply, error) {
	var onNote func([]byte)
	if onProgress != nil {
		onNote = func(note []byte) {
			var p Progress
			if json.Unmarshal(note, &p) == nil {
				onProgress(p)
			}
		}
	}
	reply := new(Reply)
	if err := doInto(ctx, p, ep, call, req, reply, onNote); err != nil {
		return nil, err
	}
	return reply, nil
}

func doInto(ctx context.Context, p *rpc.Peer, ep *fabric.Endpoint, call string, req, reply any, onNote func([]byte)) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("control: %s: %w", call, err)
	}
	answer, err := p.CallNotes(ctx, ep, call, body, onNote)
	if err != nil {
		return Err(ep.Name(), err)
	}
	if err := json.Unmarshal(answer, reply); err != nil {
		return fmt.Errorf("%s at %s: its answer cannot be read (is it another version?): %w", call, ep.Name(), err)
	}
	if v, ok := reply.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("%s at %s: its answer makes no sense (is it another version?): %w", call, ep.Name(), err)
		}
	}
	return nil
}

// Serve registers a call: it decodes requests, and encodes answers and errors.
func Serve[Request, Reply any](p *rpc.Peer, call string, fn func(ctx context.Context, c *rpc.Call, req *Request) (*Reply, error)) error {
	return p.Register(call, func(ctx context.Context, c *rpc.Call) ([]byte, error) {
		req := new(Request)
		if err := json.Unmarshal(c.Req, req); err != nil {
			return nil, Coded(fmt.Errorf("%w: %s: %v", ErrRequest, call, err))
		}
		reply, err := fn(ctx, c, req)
		if err != nil {
			return nil, Coded(err)
		}
		body, err := json.Marshal(reply)
		if err != nil {
			return nil, fmt.Errorf("control: %s: %w", call, err)
		}
		return body, nil
	}, ruleOf(call).options())
}
