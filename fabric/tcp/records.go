package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// recordHeadBytes is the length of a TLS record's header; the last two of
	// its bytes say how much follows.
	recordHeadBytes = 5
	// maxRecordBytes is the longest record that crypto/tls accepts in any state of a connection.
	maxRecordBytes = recordHeadBytes + 16<<10 + 2<<10
	// firstRecordType and lastRecordType are the types that a record of TLS can have.
	firstRecordType, lastRecordType = 20, 23
	// sealBytes is what a record of TLS 1.3 adds to its payload: header, type and tag.
	sealBytes = recordHeadBytes + 1 + 16
)

// records is the net.Conn that crypto/tls sees under a connection. While HELLO
// runs it blocks on the socket, under the connection's deadlines. From Start on
// it only moves bytes between buffers: the leader fills and drains those.
//
// TLS is shown one record at a time, whole, and only when the link says so:
// then nothing waits inside TLS where the link would not know of it, and TLS is not asked,
// which costs an allocation, before there is something to open.
type records struct {
	c *net.TCPConn // nil from Start on

	// Received: from at to end, as it came. Of it, TLS may take left bytes, the
	// rest of a record that it has been shown.
	raw  []byte
	at   int
	end  int
	left int

	// Sealed, to be sent. outMu is held for moments only, and nothing is locked
	// under it: also the leader writes, inside Read, when TLS answers its peer.
	outMu sync.Mutex
	out   []byte
	outAt int
	small []byte // what out is while little waits in it
	bound int    // of what waits in out
	// sending is set while a Send seals: what is written otherwise is for the leader to flush.
	sending atomic.Bool
	owing   atomic.Bool
	over    atomic.Bool // bound was reached
}

// dry is what TLS reads when the link has shown it no further record. It is a
// temporary error, after which crypto/tls goes on where it was.
type dry struct{}

func (dry) Error() string   { return "tcp: no whole record yet" }
func (dry) Timeout() bool   { return false }
func (dry) Temporary() bool { return true }

// errOverflow ends a link whose peer makes TLS answer and does not read the answers.
var errOverflow = errors.New("the peer takes no answers of TLS")

// next is the length of the first record in raw, if it is whole. Of what can be
// no record the header is enough: TLS refuses it.
func (w *records) next() (n int, whole bool) {
	have := w.end - w.at
	if have < recordHeadBytes {
		return 0, false
	}
	n = recordHeadBytes + int(binary.BigEndian.Uint16(w.raw[w.at+3:]))
	if n > maxRecordBytes || w.raw[w.at] < firstRecordType || w.raw[w.at] > lastRecordType {
		return recordHeadBytes, true
	}
	return n, have >= n
}

// show lets TLS have the next record, if there is a whole one.
func (w *records) show() bool {
	n, whole := w.next()
	if whole {
		w.left = n
	}
	return whole
}

// room makes space in raw for at least one record.
func (w *records) room() []byte {
	if w.at == w.end {
		w.at, w.end = 0, 0
	} else if len(w.raw)-w.end < maxRecordBytes {
		w.end = copy(w.raw, w.raw[w.at:w.end])
		w.at = 0
	}
	return w.raw[w.end:]
}

// Read gives TLS what it was shown; while HELLO runs, it waits for a record.
func (w *records) Read(p []byte) (int, error) {
	for w.left == 0 {
		if w.c == nil {
			return 0, dry{}
		}
		if w.show() {
			break
		}
		n, err := w.c.Read(w.room())
		w.end += n
		if n == 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF // TLS has an end of its own
		}
		if n == 0 && err != nil {
			return 0, err
		}
	}
	n := copy(p, w.raw[w.at:w.at+w.left])
	w.at += n
	w.left -= n
	return n, nil
}

// Write takes sealed bytes from TLS.
func (w *records) Write(p []byte) (int, error) {
	if w.c != nil {
		return w.c.Write(p)
	}
	w.outMu.Lock()
	defer w.outMu.Unlock()
	if len(w.out)-w.outAt+len(p) > w.bound {
		w.over.Store(true)
		return 0, errOverflow
	}
	if w.outAt > len(w.out)/2 {
		w.out = w.out[:copy(w.out, w.out[w.outAt:])]
		w.outAt = 0
	}
	w.out = append(w.out, p...)
	if !w.sending.Load() {
		w.owing.Store(true)
	}
	return len(p), nil
}

// waiting is how many sealed bytes the socket has not taken yet.
func (w *records) waiting() int {
	w.outMu.Lock()
	defer w.outMu.Unlock()
	return len(w.out) - w.outAt
}

// Close closes the socket while HELLO runs; later the link does.
func (w *records) Close() error {
	if w.c != nil {
		return w.c.Close()
	}
	return nil
}

// LocalAddr is nil from Start on, as RemoteAddr is: nobody asks.
func (w *records) LocalAddr() net.Addr {
	if w.c != nil {
		return w.c.LocalAddr()
	}
	return nil
}

func (w *records) RemoteAddr() net.Addr {
	if w.c != nil {
		return w.c.RemoteAddr()
	}
	return nil
}

// SetDeadline bounds Read and Write while HELLO runs; later neither waits.
func (w *records) SetDeadline(t time.Time) error {
	if w.c != nil {
		return w.c.SetDeadline(t)
	}
	return nil
}

func (w *records) SetReadDeadline(t time.Time) error {
	if w.c != nil {
		return w.c.SetReadDeadline(t)
	}
	return nil
}

func (w *records) SetWriteDeadline(t time.Time) error {
	if w.c != nil {
		return w.c.SetWriteDeadline(t)
	}
	return nil
}
