package sim_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/sim"
	"github.com/wherry-fabric/wherry/internal/seeds"
)

func leUint64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// small limits, so that every bound is met.
var tight = fabric.Limits{WindowBytes: 2 * fabric.MaxFrameBytes, OpsPerEndpoint: 12, OutboxBytes: 80_000, PeerTime: 120 * ms, OpTime: 400 * ms}

// narrow has little room where operations and messages wait.
var narrow = fabric.Limits{WindowBytes: 2 * fabric.MaxFrameBytes, OpsPerEndpoint: 5, OutboxBytes: 13_000, PeerTime: 120 * ms, OpTime: 400 * ms}

var everything = []weighted{{10, actPost}, {4, actSend}, {1, actJam}, {3, actFlush}, {6, actChain}, {6, actSignal}, {6, actStatic}, {3, actForget}, {4, actExpire},
	{6, actAdd}, {5, actWord}, {4, actGrant}, {2, actRevoke}, {2, actRent}, {4, actVisit}, {2, actForge}, {8, actUse}, {4, actRace}}

var kinds = []struct {
	name string
	trialKind
}{
	{"calm", trialKind{
		faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 60 * us, Detect: ms, Lag: 5 * us, Room: 200},
		limits: tight, hosts: 3, wires: 1, spread: 30 * ms, actions: 250, mix: everything, hold: ms, bodies: 3000, reliable: true,
	}},
	{"lossy", trialKind{
		faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 500 * us, Loss: 0.05, Duplicate: 0.1, Detect: ms, Lag: 50 * us, Room: 40, Burst: 4, Pieces: 0.5},
		limits: narrow, hosts: 3, wires: 2, spread: 40 * ms, actions: 250, mix: everything, hold: 3 * ms, handOff: 0.2, bodies: 12_000, reliable: true,
	}},
	{"full", trialKind{
		faults: sim.WireFaults{MinDelay: 20 * us, MaxDelay: 200 * us, Detect: ms, Lag: 20 * us, Room: 2, RoomReserved: 3, Burst: 3, Pieces: 0.2},
		limits: tight, hosts: 2, wires: 1, spread: 20 * ms, actions: 300,
		mix:  []weighted{{20, actPost}, {5, actSend}, {3, actJam}, {5, actChain}, {5, actSignal}, {8, actStatic}, {2, actFlush}, {3, actExpire}, {5, actAdd}, {5, actWord}},
		hold: 5 * ms, bodies: fabric.MaxMessageBytes - messageHead, reliable: true,
	}},
	{"crash", trialKind{
		faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 300 * us, Detect: 2 * ms, Silent: 0.3, Lag: 20 * us, Room: 60, Burst: 8, Pieces: 0.3},
		limits: tight, hosts: 3, wires: 1, spread: 60 * ms, actions: 300, mix: everything, hold: 2 * ms, handOff: 0.1, bodies: 4000, crashes: 4, stops: 1,
	}},
	{"cuts", trialKind{
		faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 300 * us, Loss: 0.02, Tries: 3, Detect: 2 * ms, Lag: 20 * us, Room: 30, Burst: 8, Pieces: 0.3},
		limits: tight, hosts: 3, wires: 2, spread: 60 * ms, actions: 300, mix: everything, hold: 2 * ms, bodies: 4000, cuts: 4, closes: 3, silent: 1,
	}},
	{"silence", trialKind{
		faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 300 * us, Detect: 2 * ms, Lag: 20 * us, Room: 60, Burst: 8, Silent: 1},
		limits: tight, hosts: 3, wires: 1, spread: 300 * ms, actions: 300, mix: everything, hold: 2 * ms, bodies: 4000, silent: 5, crashes: 1,
	}},
	{"closing", trialKind{
		faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 100 * us, Detect: ms, Lag: 100 * us, Room: 30, Burst: 2, Pieces: 1},
		limits: tight, hosts: 2, wires: 2, spread: 30 * ms, actions: 250,
		mix:  []weighted{{10, actChain}, {10, actStatic}, {3, actForget}, {3, actExpire}, {2, actPost}, {3, actGrant}, {4, actVisit}, {8, actUse}, {1, actRevoke}, {6, actRace}},
		hold: ms, bodies: 3000, closes: 16,
	}},
	{"mapped", trialKind{
		faults: sim.WireFaults{MinDelay: 2 * us, MaxDelay: 100 * us, Detect: ms, Lag: 10 * us, Room: 60, Burst: 8, Pieces: 0.3, Descriptors: true},
		limits: tight, hosts: 3, wires: 1, spread: 30 * ms, actions: 250, mix: everything, hold: ms, bodies: 3000, crashes: 1, cuts: 1,
	}},
}

// TestSimElements: whatever happens, the fabric's promises hold; see doc.go.
func TestSimElements(t *testing.T) {
	for i := range kinds {
		k := &kinds[i]
		t.Run(k.name, func(t *testing.T) {
			var ended, good int
			trials.Each(t, few(30), func(seed uint64, fail seeds.Fail) {
				tr := newTrial(&k.trialKind, seed, fail)
				tr.run()
				ended += tr.ended
				good += tr.good
			})
			if good*4 < ended || good == 0 {
				t.Errorf("of %d operations only %d succeeded: the trials test little", ended, good)
			}
		})
	}
}

// TestSimElementsRepeat: a seed gives one history.
func TestSimElementsRepeat(t *testing.T) {
	for i := range kinds {
		k := &kinds[i]
		t.Run(k.name, func(t *testing.T) {
			trials.Each(t, few(2), func(seed uint64, fail seeds.Fail) {
				var sums [2]uint64
				for j := range sums {
					tr := newTrial(&k.trialKind, seed, fail)
					tr.run()
					sums[j] = tr.trace.Sum64()
				}
				if sums[0] != sums[1] {
					fail("seed %d gave two histories", seed)
				}
			})
		})
	}
}
