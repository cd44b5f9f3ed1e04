package inject

import (
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// Visits reports whether the run that an engine has this host for is light so far.
func Visits(at abi.Host) bool {
	h := at.(*host)
	h.rt.mu.Lock()
	defer h.rt.mu.Unlock()
	return h.run.Light()
}

// NameFunction gives a function a number for the run's forward and fork, on the run's dataset and in the form that was asked for.
func NameFunction(at abi.Host, img travel.ID) (uint32, error) {
	h := at.(*host)
	h.rt.mu.Lock()
	defer h.rt.mu.Unlock()
	own := h.run.Binding()
	return h.nameAs(travel.What{Image: img, Table: own.Table, Form: own.Form})
}

// Leads reports whether a run is on the goroutine that drives the fabric. Only that one may ask.
func Leads(at abi.Host) bool { return at.(*host).leads }

// Conceal makes a function's branches not say that they may keep scratch, as only an origin that means ill would.
func (f *Function) Conceal() { f.stateful = false }

// Pretend makes a function one that starts by chunk for the element that starts it only.
func (f *Function) Pretend() { f.img.Call().Start = image.StartChunk }

// Asked is the last invocation that Do started in the quick way, 0 if there is none.
func (f *Function) Asked() uint64 {
	f.rt.mu.Lock()
	defer f.rt.mu.Unlock()
	if f.spare == nil {
		return 0
	}
	return uint64(f.spare.id)
}

// LimitCache changes what the runtime's objects may take.
func (rt *Runtime) LimitCache(bytes int64) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.store.limit = bytes
}

// Wanted is how many loads run or wait that runs wait for.
func (rt *Runtime) Wanted() int {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.loads.byKey)
}

// Loading is how many loads run.
func (rt *Runtime) Loading() int {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.loads.running
}

// Begins says where roots on a table of elements of these names were to begin.
func Begins(elements []string, roots []Root) string {
	f := Function{table: &cluster.Table{}}
	for _, name := range elements {
		f.table.Shards = append(f.table.Shards, cluster.Shard{Element: name})
	}
	return f.begins(roots)
}

// Turns is how many turns have begun or are waited for.
func Turns(rt *Runtime) int {
	rt.turns.mu.Lock()
	defer rt.turns.mu.Unlock()
	return rt.turns.computing + rt.turns.waiting
}

// PutOff is how long better code of a function's first entry is not tried again from now on. It is to be tried at once then.
func (rt *Runtime) PutOff(id image.ID) time.Duration {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	p := &rt.store.codes[id].programs[0]
	d := time.Duration(p.until - rt.now())
	p.until = 0
	return d
}
