package control

import (
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// TestRules: what can be megabytes is read from principals only that may make the call, and anything else is short.
func TestRules(t *testing.T) {
	for call, caps := range map[string]cluster.Caps{CallPrepare: cluster.CapWrite, CallFile: cluster.CapWrite, pool.CallReserve: cluster.CapMember,
		pool.CallRelease: cluster.CapMember, pool.CallEpoch: cluster.CapMember} {
		if r := ruleOf(call); r.caps != caps || r.bytes <= smallBody {
			t.Errorf("%s: %+v, want %v", call, r, caps)
		}
	}
	for _, call := range []string{CallStat, CallList, CallTable, CallStatus, CallGrant, CallRemove, CallBegin, pool.CallStat, pool.CallDiscard, "anything else"} {
		if r := ruleOf(call); r.bytes > smallBody {
			t.Errorf("%s: %d bytes", call, r.bytes)
		}
	}
}
