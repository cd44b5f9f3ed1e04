package rpc

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/fabric"
)

func TestSeenAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s seen
		model := map[uint64]bool{}
		low := uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "raise") == 0 {
				low += uint64(rapid.IntRange(0, 8).Draw(t, "by"))
			}
			id := low + uint64(rapid.IntRange(0, 40).Draw(t, "id"))
			told := min(low, id)
			if rapid.Bool().Draw(t, "late") && id > 10 {
				id, told = id-10, 0
			}
			want := !model[id] && id >= s.low && id >= told
			if got := s.add(id, told); got != want {
				t.Fatalf("add(%d, %d) = %v with low %d, ranges %v", id, told, got, s.low, s.ranges)
			}
			if want {
				model[id] = true
			}
			for i, r := range s.ranges {
				if r.first > r.last || r.first <= s.low || i > 0 && s.ranges[i-1].last+1 >= r.first {
					t.Fatalf("ranges %v with low %d", s.ranges, s.low)
				}
			}
		}
	})
}

func TestSeenIsBounded(t *testing.T) {
	var s seen
	for i := range uint64(maxSeenRanges) {
		if !s.add(2*i+1, 0) {
			t.Fatalf("gap %d is refused", i)
		}
	}
	if s.add(1<<40, 0) || len(s.ranges) != maxSeenRanges {
		t.Errorf("%d ranges", len(s.ranges))
	}
	if !s.add(1<<40, 1<<39) || len(s.ranges) != 1 {
		t.Errorf("after the peer said that the gaps will not be filled: %d ranges", len(s.ranges))
	}
}

func FuzzDecodeRequest(f *testing.F) {
	r := request{method: 1, id: 2, low: 1, left: time.Second}
	f.Add(append(r.appendHead(nil), "payload"...))
	r.bulk = true
	f.Add(bulk{fabric.Key{Owner: 1, Size: 100, Rights: fabric.RightRead}, 50}.append(r.appendHead(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRequest(b)
		if err != nil {
			return
		}
		if again := append(r.appendHead(nil), r.body...); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		if r.bulk {
			if k, err := decodeBulk(r.body, 1<<20); err == nil && !bytes.Equal(k.append(nil)[:40], r.body[:40]) {
				t.Fatalf("%x became %x", r.body, k.append(nil))
			}
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	ok, bad := response{id: 3, body: []byte("answer")}, response{id: 4, code: CodeBusy, body: []byte("busy")}
	f.Add(append(ok.appendHead(nil), ok.body...))
	f.Add(append(bad.appendHead(nil), bad.body...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeResponse(b)
		if err != nil {
			return
		}
		if again := append(r.appendHead(nil), r.body...); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func TestBulkRoundTrip(t *testing.T) {
	k := bulk{fabric.Key{Owner: 1, Slot: 2, Generation: 3, Secret: [16]byte{4}, Size: 100, Rights: fabric.RightRead, Sealed: true}, 50}
	got, err := decodeBulk(k.append(nil), 1000)
	if diff := cmp.Diff(k, got, cmp.AllowUnexported(bulk{})); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, size := range map[string]uint64{"nothing": 0, "more than the key": 101, "above the limit": 1001} {
		k.size = size
		if _, err := decodeBulk(k.append(nil), 1000); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
