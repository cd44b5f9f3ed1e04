package fabric

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
)

// revokeRig is an element that serves Puts of a peer, by hand.
type revokeRig struct {
	*testing.T
	e    *Element
	ep   *Endpoint
	link *fakeLink
	seg  *Segment
}

func newRevokeRig(t *testing.T) *revokeRig {
	t.Helper()
	r := &revokeRig{T: t, e: loneElement(t, 1, Limits{})}
	r.ep, r.link = attach(t, r.e, 2)
	var err error
	r.seg, err = r.e.NewSegment(1<<20, Writable)
	r.must(err)
	return r
}

func (r *revokeRig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *revokeRig) key() Key {
	r.Helper()
	k, err := r.seg.Key(RightsAll)
	r.must(err)
	return k
}

const (
	revokeOp    = 7
	revokeBytes = 50_000 // in each fragment
)

// announce has the peer ask for a Put in fragments.
func (r *revokeRig) announce(k Key, fragments uint64) {
	r.Helper()
	r.must(r.ep.receiver().Frame(framePut, appendAccess(nil, revokeOp, k.ref(), 0, fragments*revokeBytes)))
}

func (r *revokeRig) place(flags uint32, at uint64) []byte {
	r.Helper()
	dst, err := r.ep.receiver().Place(framePutData, bulkHead(nil, revokeOp, flags, at), revokeBytes)
	r.must(err)
	return dst
}

func (r *revokeRig) placed(flags uint32, at uint64) {
	r.Helper()
	r.must(r.ep.receiver().Placed(framePutData, bulkHead(nil, revokeOp, flags, at), revokeBytes))
}

// TestRevokeWaits: Revoke returns only when what is being written is over, and what comes after it is discarded.
func TestRevokeWaits(t *testing.T) {
	r := newRevokeRig(t)
	parent := r.key()
	key, err := r.e.Narrow(parent, 0, 1<<20, RightsAll)
	r.must(err)
	r.announce(key, 3)
	if dst := r.place(0, 0); len(dst) != revokeBytes || !r.ep.receiver().BeginWrite(framePutData) {
		t.Fatal("a fragment has no place")
	}
	r.ep.receiver().EndWrite(framePutData)
	r.placed(0, 0)

	r.place(0, revokeBytes)
	if !r.ep.receiver().BeginWrite(framePutData) {
		t.Fatal("the key was taken for ended")
	}
	revoked := make(chan error)
	go func() { revoked <- r.e.Revoke(parent) }()
	select {
	case err := <-revoked:
		t.Fatalf("Revoke did not wait for a write: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	r.ep.receiver().EndWrite(framePutData)
	r.must(<-revoked)
	if r.ep.receiver().BeginWrite(framePutData) {
		t.Error("written after Revoke")
	}
	r.placed(0, revokeBytes)
	if r.place(bulkLast, 2*revokeBytes) != nil {
		t.Error("a fragment that follows has a place")
	}
	r.placed(bulkLast, 2*revokeBytes)
	wantRevoked(t, r.link, revokeOp)
}

// TestForgetWaits: a Get that is given up waits for what is being written to its buffer, and what comes after it is discarded.
func TestForgetWaits(t *testing.T) {
	r := newRevokeRig(t)
	rec := r.ep.ops.start("get", make([]byte, 3*revokeBytes))
	place := func(flags uint32, at uint64) []byte {
		dst, err := r.ep.receiver().Place(frameGetData, bulkHead(nil, rec.id(), flags, at), revokeBytes)
		r.must(err)
		return dst
	}
	placed := func(flags uint32, at uint64) {
		r.must(r.ep.receiver().Placed(frameGetData, bulkHead(nil, rec.id(), flags, at), revokeBytes))
	}
	if dst := place(0, 0); len(dst) != revokeBytes {
		t.Fatal("a fragment has no place")
	}
	for range 2 { // in two parts
		if !r.ep.receiver().BeginWrite(frameGetData) {
			t.Fatal("a Get that is under way was taken for given up")
		}
		r.ep.receiver().EndWrite(frameGetData)
	}
	placed(0, 0)
	place(0, revokeBytes)
	if !r.ep.receiver().BeginWrite(frameGetData) {
		t.Fatal("a Get that is under way was taken for given up")
	}
	forgotten := make(chan struct{})
	go func() {
		defer close(forgotten)
		Op{rec: rec}.Forget()
	}()
	select {
	case <-forgotten:
		t.Fatal("Forget did not wait for a write")
	case <-time.After(20 * time.Millisecond):
	}
	r.ep.receiver().EndWrite(frameGetData)
	<-forgotten
	if r.ep.receiver().BeginWrite(frameGetData) {
		t.Error("written after Forget")
	}
	placed(0, revokeBytes)
	if place(bulkLast, 2*revokeBytes) != nil {
		t.Error("a fragment that follows has a place")
	}
	placed(bulkLast, 2*revokeBytes)
	if n := r.ep.ops.pending; n != 0 {
		t.Errorf("%d operations are under way", n)
	}
}

// TestRevokedAtTheEnd: the last fragment is the one in which the key ends; and Puts that come whole, short and long.
func TestRevokedAtTheEnd(t *testing.T) {
	r := newRevokeRig(t)
	key := r.key()
	r.announce(key, 1)
	r.place(bulkLast, 0)
	r.must(r.e.Revoke(key))
	if r.ep.receiver().BeginWrite(framePutData) {
		t.Error("a last fragment was written after Revoke")
	}
	r.placed(bulkLast, 0)
	wantRevoked(t, r.link, revokeOp)
	ones := bytes.Repeat([]byte{1}, revokeBytes)
	for _, n := range []uint64{8, shortWriteBytes, shortWriteBytes + 1, revokeBytes} {
		r.must(r.ep.receiver().Frame(framePut, append(appendAccess(nil, revokeOp, key.ref(), 0, n), ones[:n]...)))
		wantRevoked(t, r.link, revokeOp)
	}
	if r.e.write(key.ref(), span{seg: r.seg, mem: r.seg.Bytes(), size: len(ones)}, ones) != statusRevoked || r.seg.Bytes()[0] != 0 {
		t.Error("written after Revoke")
	}
}

func wantRevoked(t *testing.T, link *fakeLink, op uint32) {
	t.Helper()
	want := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, op), uint32(statusRevoked))
	if got := link.take(); len(got) != 1 || got[0].id != framePutDone || string(got[0].body) != string(want) {
		t.Errorf("answered %v, want frame %d of %x", got, framePutDone, want)
	}
}

// TestShortWriteHoldsKeys: between the check of a short write and its end no key ends.
func TestShortWriteHoldsKeys(t *testing.T) {
	e := loneElement(t, 1, Limits{})
	seg, err := e.NewSegment(4096, Writable)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		end  func(Key) error
	}{{"Revoke", e.Revoke}, {"Close", func(Key) error { return seg.Close() }}} { // which ends the segment, the last
		name, end := c.name, c.end
		key, err := seg.Key(RightsAll)
		if err != nil {
			t.Fatal(err)
		}
		at, st := e.keys.enter(key.ref(), 8, 8, RightWrite)
		if st != statusOK {
			t.Fatal(st.err())
		}
		ended := make(chan error)
		go func() { ended <- end(key) }()
		select {
		case <-ended:
			t.Fatalf("%s did not wait for a write", name)
		case <-time.After(20 * time.Millisecond):
		}
		CopyIn(at.mem, make([]byte, 8))
		e.keys.leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, need := range []Rights{RightRead, RightWrite} {
			if _, st := e.keys.enter(key.ref(), 8, 8, need); st != statusRevoked {
				t.Errorf("%s: then the status is %d", name, st)
			}
		}
	}
}
