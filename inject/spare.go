package inject

import (
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// Spare says that an endpoint is not needed, because there is another one of the same principal to the same
// incarnation: functions travel over that from now on. It reports whether anything is under way that would be lost
// with this one. It may be called again, to ask.
func (rt *Runtime) Spare(ep *fabric.Endpoint) (busy bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	n := rt.number(ep)
	if n == travel.Self {
		return false
	}
	inc := ep.Incarnation()
	for i, other := range rt.peers {
		if other != nil && other != ep && other.Incarnation() == inc && !rt.about[i].foreign {
			if rt.numbers[inc] == n {
				rt.numbers[inc] = travel.Peer(i)
			}
			rt.about[n].incarnation = 0 // whoever has its number by heart asks again
			break
		}
	}
	return rt.core.Spare(rt.now(), n)
}
