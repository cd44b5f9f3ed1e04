package control

import (
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/rpc"
)

// rule is what is looked at before a request is: its length and its sender. What a reader of JSON makes of its text can take a hundred times as much
// memory, so no more is read than the call needs, and nothing of a sender that may not make the call.
type rule struct {
	bytes int          // at most; 0: smallBody
	caps  cluster.Caps // that it takes, whatever it is about
}

const (
	// smallBody holds pool.MaxRanges ranges, the most that a usual request has.
	smallBody = 128 << 10
	// piecesBody holds as many pieces with a key each.
	piecesBody = 1 << 20
)

// ruleOf is the rule for a call.
func ruleOf(call string) rule {
	r := rule{}
	switch call {
	case CallPrepare: // has a shard table
		r = rule{MaxBodyBytes, cluster.CapWrite}
	case CallBegin, CallAlloc, CallFill, CallCommit, CallAbort:
		r.caps = cluster.CapWrite
	case CallFile: // has a schema
		r = rule{piecesBody, cluster.CapWrite}
	case CallOutcome, CallNameConflict:
		r.caps = cluster.CapMember
	case CallExplain:
		r.caps = cluster.CapInject
	case pool.CallReserve, pool.CallRelease, pool.CallEpoch: // have the parts of a region
		r = rule{MaxBodyBytes, cluster.CapMember}
	case pool.CallCopy, pool.CallPull, pool.CallItemCreate:
		r.bytes = piecesBody
	}
	if r.bytes == 0 {
		r.bytes = smallBody
	}
	return r
}

// options are those under which a call is registered.
func (r rule) options() rpc.Options {
	return rpc.Options{MaxBytes: r.bytes, Allow: func(ep *fabric.Endpoint) error {
		who := PrincipalOf(ep)
		if r.caps == 0 || who.Caps.Has(r.caps) {
			return nil
		}
		return Coded(&cluster.ForbiddenError{Principal: who.Name, Need: "capability " + r.caps.String(), Do: "use a token or certificate that has it"})
	}}
}
