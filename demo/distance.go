package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/demo/report"
)

// MaxRTT bounds an emulated round trip: more than once around the earth.
const MaxRTT = time.Second

// Distance is how far apart client and elements are said to be. Times are not
// waited for: they are computed from what a method did here, its round trips,
// messages and bytes. Whoever shows them has to call them emulated.
type Distance struct {
	// RTT is between any two: client and elements, and elements among each other. Every wait of a reader takes so
	// much longer, and an injection half of it for every message of the longest chain that led to its reply.
	RTT time.Duration
	// ClientRTT is between the client and the elements, which are near each other: every wait of the client
	// takes so much longer.
	ClientRTT time.Duration
	// Bandwidth is that of the client's link, in bits a second; 0 is without limit.
	Bandwidth uint64
}

// Validate says what is wrong with a distance.
func (d *Distance) Validate() error {
	for _, rtt := range []time.Duration{d.RTT, d.ClientRTT} {
		if rtt < 0 || rtt > MaxRTT {
			return fmt.Errorf("demo: an emulated round trip of %v: 0 to %v are possible", rtt, MaxRTT)
		}
	}
	return nil
}

// everybody is what a method's waits take longer if all are RTT apart.
func (d *Distance) everybody(m *report.Method) time.Duration {
	if m.Chain > 0 {
		return d.RTT * time.Duration(m.Chain) / 2
	}
	return d.RTT * time.Duration(m.RoundTrips)
}

// client is what a method takes longer if only the client is far away.
func (d *Distance) client(m *report.Method) time.Duration {
	far := d.ClientRTT * time.Duration(m.RoundTrips)
	if d.Bandwidth > 0 {
		bits := 8 * float64(m.BytesToClient+m.BytesFromClient)
		far += time.Duration(bits / float64(d.Bandwidth) * float64(time.Second))
	}
	return far
}

// The distance that is shown if nobody says: a client at another site, on a link as many offices have.
const (
	DefaultClientRTT = 20 * time.Millisecond
	DefaultBandwidth = "100Mbit"
)

// ParseBandwidth reads bits a second: a number with kbit, Mbit, Gbit or nothing behind it.
func ParseBandwidth(text string) (uint64, error) {
	number := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text)), "/s")
	unit := 1.0
	for name, bits := range map[string]float64{"kbit": 1e3, "mbit": 1e6, "gbit": 1e9} {
		if rest, ok := strings.CutSuffix(number, name); ok {
			number, unit = strings.TrimSpace(rest), bits
			break
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x >= 0) || x*unit > 1e15 || x > 0 && x*unit < 1 {
		return 0, fmt.Errorf("demo: %q is no bandwidth in bits a second, as 100Mbit or 1.5Gbit", text)
	}
	return uint64(x * unit), nil
}
