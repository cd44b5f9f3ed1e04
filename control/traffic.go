package control

import (
	"context"
	"fmt"
	"strconv"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// CallTraffic asks a node what it has sent to other members and to the asker:
// Nothing → Traffic.
const CallTraffic = "wherry.traffic"

// Traffic is what a node has sent since its start, over connections that are still up.
type Traffic struct {
	Sent []Sent `json:"sent"`
	// Owed is not 0 while messages of travelling functions are still to come of what
	// happened here, started by any element: see travel.Sizes.
	Owed Count `json:"owed"`
}

// Sent is what went to one peer. A measurement can subtract the
// answers to its own questions: they are all of the same length.
type Sent struct {
	To     cluster.Incarnation `json:"to"`
	Frames Count               `json:"frames"`
	Bytes  Count               `json:"bytes"` // of frames' bodies; what a transport puts before each is not among them
}

// Count is a number that JSON writes as 16 hex digits.
type Count uint64

// MarshalText writes 16 hex digits.
func (n Count) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(n)), nil }

// UnmarshalText reads them.
func (n *Count) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil || len(text) != 16 {
		return fmt.Errorf("control: a count must be 16 hex digits, this is %.20q", text)
	}
	*n = Count(v)
	return nil
}

// TrafficOf is the answer to a question that came from an endpoint. A client
// hears nothing about other clients.
func TrafficOf(from *fabric.Endpoint, owed int) *Traffic {
	t := &Traffic{Sent: []Sent{}, Owed: Count(owed)}
	for _, ep := range from.Element().Endpoints() {
		if ep != from && !PrincipalOf(ep).Caps.Has(cluster.CapMember) {
			continue
		}
		s := ep.Stats()
		t.Sent = append(t.Sent, Sent{cluster.Incarnation(ep.Incarnation()), Count(s.SentFrames), Count(s.SentBytes)})
	}
	return t
}

// ServeTraffic answers CallTraffic; owed gives Traffic.Owed.
func ServeTraffic(p *rpc.Peer, owed func() int) error {
	return Serve(p, CallTraffic, func(_ context.Context, c *rpc.Call, _ *Nothing) (*Traffic, error) {
		return TrafficOf(c.From, owed()), nil
	})
}
