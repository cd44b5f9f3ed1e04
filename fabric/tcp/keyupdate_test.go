package tcp

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// sealer makes records as a TLS 1.3 client does (RFC 8446, sections 5.2 and
// 7.1), so that a test can send what crypto/tls never does by itself: new keys.
type sealer struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// expand is HKDF-Expand-Label with an empty context.
func expand(t testing.TB, secret []byte, label string, n int) []byte {
	t.Helper()
	info := append([]byte{byte(n >> 8), byte(n), byte(len("tls13 ") + len(label))}, "tls13 "+label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *sealer) use(t testing.TB, secret []byte) {
	t.Helper()
	block, err := aes.NewCipher(expand(t, secret, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	s.secret, s.iv, s.seq = secret, expand(t, secret, "iv", 12), 0
}

func (s *sealer) record(kind byte, plain []byte) []byte {
	nonce := bytes.Clone(s.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, s.seq) {
		nonce[4+i] ^= b
	}
	s.seq++
	n := len(plain) + 1 + s.aead.Overhead()
	head := []byte{23, 3, 3, byte(n >> 8), byte(n)}
	return s.aead.Seal(head, nonce, append(bytes.Clone(plain), kind), head)
}

// newKeys announces new keys, asks the peer for new ones too, and goes on with them.
func (s *sealer) newKeys(t testing.TB) []byte {
	r := s.record(22, []byte{24, 0, 0, 1, 1})
	s.use(t, expand(t, s.secret, "traffic upd", sha256.Size))
	return r
}

// byHand is a pipe whose peer's records are made by hand from here on.
func byHand(t testing.TB, cfg Config, r fabric.Receiver) (*sealedPipe, *sealer) {
	t.Helper()
	var log bytes.Buffer
	p := newSealedPipe(t, cfg, r, nil, func(c *tls.Config) { c.KeyLogWriter = &log })
	if suite := p.peer.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("this processor has no AES, so TLS chose %s, which this test does not speak", tls.CipherSuiteName(suite))
	}
	s := &sealer{}
	for line := range strings.Lines(log.String()) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			s.use(t, secret)
		}
	}
	s.seq = 1 // HELLO
	return p, s
}

// TestNewKeys: a peer may change its keys and ask for ours to change, at any
// time, also while we send.
func TestNewKeys(t *testing.T) {
	r := &recorder{}
	p, s := byHand(t, Config{}, r)
	// They come a few at a time while a few frames are sent: each is answered at once, and crypto/tls, which reads here,
	// gives up after 16 records in a row without data.
	const rounds, few = 200, 5
	start, sent := make(chan struct{}), make(chan error, 1)
	defer close(start)
	go func() {
		i := 0
		for range start {
			var err error
			for end := i + few; i < end && err == nil; i++ {
				err = p.l.Send(100, fabric.Normal, nil, fill(1+i*331%20_000, byte(i)))
			}
			sent <- err
		}
	}()
	var want []byte
	for i := range rounds {
		want = append(want, wire(100, fill(1+i*331%20_000, byte(i)))...)
	}
	got := make([]byte, len(want))
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(p.peer, got)
		read <- err
	}()
	// done polls until it hears.
	done := func(ch chan error) {
		for {
			p.tr.Poll(64, fabric.Turn{})
			select {
			case err := <-ch:
				if err != nil {
					t.Fatal(err)
				}
				return
			default:
			}
		}
	}
	for i := 0; i < rounds; i += few {
		var updates []byte
		for j := range few {
			updates = append(updates, append(s.newKeys(t), s.record(23, wire(101, []byte{byte(i + j)}))...)...)
		}
		start <- struct{}{}
		p.deliver(t, updates, func(k int) int { return 1 + k*13%60 })
		done(sent)
	}
	done(read)
	if !bytes.Equal(got, want) {
		t.Error("what was sent under changing keys differs")
	}
	if len(r.log) != rounds || r.lost != nil {
		t.Errorf("%d frames of %d, lost: %v", len(r.log), rounds, r.lost)
	}
	for i, f := range r.log {
		if f != fmt.Sprintf("101 %02x", i) {
			t.Fatalf("frame %d is %q", i, f)
		}
	}
}

// TestNewKeysFlood: a peer that makes TLS answer and never reads is given up;
// what waits for it stays bounded.
func TestNewKeysFlood(t *testing.T) {
	r := &recorder{}
	p, s := byHand(t, Config{OutBytes: fabric.MaxFrameBytes + headerBytes}, r)
	for p.l.Send(100, fabric.Reserved, nil, make([]byte, 1<<15)) == nil {
	}
	before := p.l.sec.wire.waiting()
	bound := p.l.sec.wire.bound
	for end := time.Now().Add(patience); r.lost == nil; {
		var flood []byte
		for range 200 {
			flood = append(append(flood, s.newKeys(t)...), s.record(23, wire(101, nil))...)
		}
		for len(flood) > 0 && r.lost == nil {
			n, err := unix.Write(p.raw, flood)
			if err != nil && err != unix.EAGAIN && err != unix.EPIPE && err != unix.ECONNRESET {
				t.Fatal(err)
			}
			flood = flood[max(n, 0):]
			p.tr.Poll(64, fabric.Turn{})
			if kept := p.l.sec.wire.waiting(); kept > bound {
				t.Fatalf("%d bytes wait, the bound is %d", kept, bound)
			}
			if time.Now().After(end) {
				t.Fatalf("not given up, with %d bytes waiting", p.l.sec.wire.waiting())
			}
		}
	}
	if r.lost != errOverflow || before == 0 {
		t.Errorf("%d bytes waited; the link ended because of %v", before, r.lost)
	}
}
