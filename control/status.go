package control

import (
	"time"

	"github.com/wherry-fabric/wherry/cluster"
)

// StatusRequest asks a node what goes on there.
type StatusRequest struct {
	Version int `json:"version"`
}

// Bounds of a Status's lists; what does not fit is counted.
const (
	// MaxStatusEndpoints is an element's usual limit of endpoints.
	MaxStatusEndpoints = 4096
	// MaxStatusFunctions is more than people read.
	MaxStatusFunctions = 1024
	// MaxStatusLost is as many.
	MaxStatusLost = 1024
)

// Status is what goes on at a node. Counters are since its start.
type Status struct {
	Name        string              `json:"name"`
	Program     string              `json:"program"`
	Incarnation cluster.Incarnation `json:"incarnation"`
	UptimeMs    int64               `json:"uptime_ms"`
	Stopping    bool                `json:"stopping,omitempty"`
	CertUntil   time.Time           `json:"cert_until,omitzero"` // when the node's certificate ends; absent if it has none
	Forms       []string            `json:"forms"`               // of code that the node runs
	Engines     []EngineStatus      `json:"engines"`             // what is known of forms of code, those too that do not run
	Memory      MemoryStatus        `json:"memory"`
	Processor   ProcessorStatus     `json:"processor"`
	Peers       []PeerStatus        `json:"peers"` // other nodes, by name
	// ShardsLost is how many shards the node knows to be lost; LostShards are those of datasets that the asker may use.
	ShardsLost int               `json:"shards_lost"`
	LostShards []LostShard       `json:"lost_shards,omitempty"`
	Transports []TransportStatus `json:"transports"`
	Endpoints  []EndpointStatus  `json:"endpoints"`
	// EndpointsLeft is how many endpoints are not listed: those of other
	// clients, which only an admin sees, and those beyond MaxStatusEndpoints.
	EndpointsLeft int              `json:"endpoints_left,omitempty"`
	Queues        QueueStatus      `json:"queues"`
	Calls         CallsStatus      `json:"calls"`
	Functions     []FunctionStatus `json:"functions"` // in the code cache, the last used first
	FunctionsLeft int              `json:"functions_left,omitempty"`
	CodeCache     CodeCacheStatus  `json:"code_cache"`
}

// ProcessorStatus is how much of its processors a node has used since it began.
type ProcessorStatus struct {
	Processors int   `json:"processors"` // that it may use at once
	UsedMs     int64 `json:"used_ms"`    // of all of them together
	SinceMs    int64 `json:"since_ms"`
}

// EngineStatus is a form of code that a node's engines know.
type EngineStatus struct {
	Form     string   `json:"form"`
	Triple   string   `json:"triple,omitempty"`
	Features []string `json:"features,omitempty"` // of the processor
	Tier     string   `json:"tier,omitempty"`     // how such code is made to run
	Why      string   `json:"why,omitempty"`      // why it does not run here; absent: it does
}

// MemoryStatus is the memory that a node lends.
type MemoryStatus struct {
	LentBytes  int64 `json:"lent_bytes"` // to datasets, loads and regions
	LimitBytes int64 `json:"limit_bytes"`
	// PoolBytes and PoolLimitBytes are the part of regions.
	PoolBytes      int64 `json:"pool_bytes,omitempty"`
	PoolLimitBytes int64 `json:"pool_limit_bytes,omitempty"`
	PoolExtents    int   `json:"pool_extents,omitempty"`
	Datasets       int   `json:"datasets"` // that have a shard here
	Loads          int   `json:"loads"`    // under way; their memory is among LentBytes
}

// PeerStatus is another node, as the one that answers knows it.
type PeerStatus struct {
	Name        string              `json:"name"`
	Configured  bool                `json:"configured"` // it is among the node's peers; else it has dialled
	Connected   bool                `json:"connected"`
	Since       time.Time           `json:"since,omitzero"`        // of either; absent if it never was connected
	Incarnation cluster.Incarnation `json:"incarnation,omitempty"` // that is connected, or was last
	Losses      uint64              `json:"losses"`                // how often it was lost
	Error       string              `json:"error,omitempty"`       // why it is not connected
}

// LostShard is a shard that is gone, because its node came back without it.
type LostShard struct {
	Dataset string    `json:"dataset"`
	Version uint64    `json:"version"`
	Element string    `json:"element"`
	Noticed time.Time `json:"noticed"`
}

// TransportStatus is one transport, by the scheme of its addresses.
type TransportStatus struct {
	Scheme    string   `json:"scheme"`
	Listening []string `json:"listening"`
	Endpoints int      `json:"endpoints"`
}

// EndpointStatus is one connection, as the node that answers has it.
type EndpointStatus struct {
	Peer        string              `json:"peer"`
	Incarnation cluster.Incarnation `json:"incarnation"`
	Principal   string              `json:"principal"`
	Caps        string              `json:"caps"`
	Transport   string              `json:"transport"`
	Addr        string              `json:"addr"`
	Asker       bool                `json:"asker,omitempty"` // this question came over it
	// Shared: memory can be mapped over it, both ways.
	Shared   bool `json:"shared"`
	Mapped   int  `json:"mapped"`   // the peer's segments that are mapped here
	Exported int  `json:"exported"` // segments of this node that the peer may have mapped

	SentFrames   uint64 `json:"sent_frames"` // of any kind
	SentBytes    uint64 `json:"sent_bytes"`
	SentMessages uint64 `json:"sent_messages"` // of them, those that take credit
	MessageBytes uint64 `json:"message_bytes"`

	OutboxBytes   int    `json:"outbox_bytes"`   // waiting for credit or room
	ReservedBytes int    `json:"reserved_bytes"` // answers waiting for room
	Credit        uint64 `json:"credit"`         // bytes that may be sent before the peer has handled more
	Window        uint64 `json:"window"`         // … when it has handled everything
}

// QueueStatus is how full the tables of travelling functions are, in branches
// unless it says otherwise.
type QueueStatus struct {
	Running     int `json:"running"`
	Queued      int `json:"queued"` // ready to run
	Held        int `json:"held"`   // queued, parked for code or room, or waiting for their turn
	HeldBytes   int `json:"held_bytes"`
	Invocations int `json:"invocations"` // that have something here
	Records     int `json:"records"`     // transfers sent and not released
	Futures     int `json:"futures"`     // invocations started here
	Tombstones  int `json:"tombstones"`  // invocations remembered as ended
	Fetches     int `json:"fetches"`     // objects being asked for
	FetchBytes  int `json:"fetch_bytes"`
	Reports     int `json:"reports"` // acknowledgements waiting for company
	OutboxBytes int `json:"outbox_bytes"`

	Runs       uint64 `json:"runs"`
	Forwards   uint64 `json:"forwards"`
	Forks      uint64 `json:"forks"`
	Refused    uint64 `json:"refused"`
	Duplicates uint64 `json:"duplicates"`
}

// CallsStatus is what calls do.
type CallsStatus struct {
	Active       int64  `json:"active"`
	Held         int64  `json:"held"` // ran, and their answers wait to be asked for
	HeldBytes    int64  `json:"held_bytes"`
	Served       uint64 `json:"served"`
	ServedErrors uint64 `json:"served_errors"`
	Refused      uint64 `json:"refused"`
	Made         uint64 `json:"made"`
	MadeErrors   uint64 `json:"made_errors"`
}

// FunctionStatus is one function whose image is in the code cache.
type FunctionStatus struct {
	Name   string   `json:"name"`
	ID     string   `json:"id"` // 64 hex digits
	Bytes  int      `json:"bytes"`
	Forms  []string `json:"forms"`
	Ready  bool     `json:"ready"`  // its code is loaded
	InUse  bool     `json:"in_use"` // it cannot be evicted now
	Runs   uint64   `json:"runs"`   // that ended, whatever way
	Errors uint64   `json:"errors"` // of them
	// IdleMs is how long ago the last run ended; -1 if none did.
	IdleMs int64 `json:"idle_ms"`
	// Ran is how its runs went by form; by this the node chooses.
	Ran []RanStatus `json:"ran,omitempty"`
}

// RanStatus is how a function's runs went in one form.
type RanStatus struct {
	Form   string  `json:"form"`
	Tier   string  `json:"tier,omitempty"` // how the code was made that is ready now
	Why    string  `json:"why,omitempty"`  // why no better code could be made
	Runs   uint64  `json:"runs"`
	MeanUs float64 `json:"mean_us"` // of a run, without waiting; in steps of 100 for each
	Bytes  uint64  `json:"bytes"`   // of the runs' payloads, and of what they replied and sent on
}

// CodeCacheStatus is the code cache in memory (images and shard tables) and on
// disk (machine code).
type CodeCacheStatus struct {
	Memory    CacheStatus  `json:"memory"`
	Disk      *CacheStatus `json:"disk,omitempty"` // absent if the node has none
	Compiled  uint64       `json:"compiled"`       // functions compiled
	Instances int          `json:"instances"`      // of functions, running and idle
	// InstanceBytes and MachineBytes are what wasm's instances and machine code are charged.
	InstanceBytes uint64 `json:"instance_bytes"`
	MachineBytes  uint64 `json:"machine_bytes"`
}

// CacheStatus is one cache.
type CacheStatus struct {
	Dir     string `json:"dir,omitempty"`
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Limit   int64  `json:"limit"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
	Evicted uint64 `json:"evicted"`
}
