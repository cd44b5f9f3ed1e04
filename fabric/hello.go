package fabric

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/internal/wide"
)

// HELLO is the exchange that opens every connection, over its plain byte
// stream: who is there, in which incarnation, which protocol versions, features
// and limits, and the proof that both sides know the same token. The token itself never
// travels: each side shows an HMAC over everything said so far.
//
//	dialler            acceptor
//	   hello  ───────────▶
//	   ◀───────────  hello + proof   (or a refusal in words)
//	   proof  ───────────▶
//	   ◀───────────  welcome         (or a refusal in words, or the name of the connection that there is)

// featureOne says that an element needs one connection to a peer, whichever side dialled (join.go).
const featureOne uint64 = 1 << 0

// featureWide says that an element swaps 16 bytes of its memory at once (Remote.CompareSwapWide): its processor can.
const featureWide uint64 = 1 << 1

// featurePause says that an element waits for a peer that said that it would be silent (Element.Pause).
const featurePause uint64 = 1 << 2

const (
	helloMagic   = 0x59524857 // "WHRY"
	helloVersion = 1
	// maxHelloBytes bounds one HELLO message: names and addresses, no more.
	maxHelloBytes = 4096
	nonceBytes    = 32
	// helloFixedBytes is what a HELLO starts with, before its names.
	helloFixedBytes = 4 + 1 + 2 + 2 + 8 + 8 + 4 + 4 + nonceBytes
	maxNameBytes    = 128
	maxAddrs        = 8
)

type helloKind uint8

const (
	helloDial helloKind = 1 + iota
	helloAccept
	helloProof
	helloWelcome
	helloRefuse
	helloTaken  // a refusal, of the incarnation
	helloOther  // another connection is used: the acceptor says which
	helloInsist // that one is lost
)

// A Principal is who a peer is, as far as this element knows.
type Principal struct {
	Name string // "anonymous", or the name in the token or certificate
	// Caps are the capabilities that go with it; their bits are the
	// cluster's (cluster.Caps), and the fabric looks at CapMember only.
	Caps uint32
}

// Auth decides who may connect, and proves who we are. Its methods are called
// from several goroutines.
type Auth interface {
	// Self is the token shown to peers we dial; an empty name means none.
	Self() (name string, secret []byte)
	// Lookup finds the token a peer names.
	Lookup(name string) (secret []byte, p Principal, ok bool)
	// Anonymous says who a peer without a token is, if it may connect at all.
	Anonymous(cred PeerCred, known bool) (Principal, bool)
}

// hello is what each side says of itself.
type hello struct {
	kind        helloKind
	versionMin  uint16
	versionMax  uint16
	features    uint64
	incarnation Incarnation
	window      uint32 // bytes of normal messages we take unreleased
	ops         uint32 // one-sided operations we serve at once per endpoint
	nonce       [nonceBytes]byte
	name        string
	token       string // the name of the token that will be proved; "" for none
	addrs       []string
}

func (h *hello) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, helloMagic)
	b = append(b, byte(h.kind))
	b = binary.LittleEndian.AppendUint16(b, h.versionMin)
	b = binary.LittleEndian.AppendUint16(b, h.versionMax)
	b = binary.LittleEndian.AppendUint64(b, h.features)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.incarnation))
	b = binary.LittleEndian.AppendUint32(b, h.window)
	b = binary.LittleEndian.AppendUint32(b, h.ops)
	b = append(b, h.nonce[:]...)
	b = appendText(b, h.name)
	b = appendText(b, h.token)
	b = append(b, byte(len(h.addrs)))
	for _, a := range h.addrs {
		b = appendText(b, a)
	}
	return b
}

// maxTextBytes is the longest text in a HELLO: one byte says how long it is.
const maxTextBytes = 255

func appendText(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

var (
	errHello       = errors.New("not a wherry HELLO")
	errWrongSecret = errors.New("wrong secret")
)

func orUnnamed(name string) string {
	if name == "" {
		return "a peer without a name"
	}
	return name
}

// decodeHello reads one HELLO body; b comes from outside.
func decodeHello(b []byte) (*hello, error) {
	if len(b) < helloFixedBytes || binary.LittleEndian.Uint32(b) != helloMagic {
		return nil, errHello
	}
	h := &hello{
		kind:        helloKind(b[4]),
		versionMin:  binary.LittleEndian.Uint16(b[5:]),
		versionMax:  binary.LittleEndian.Uint16(b[7:]),
		features:    binary.LittleEndian.Uint64(b[9:]),
		incarnation: Incarnation(binary.LittleEndian.Uint64(b[17:])),
		window:      binary.LittleEndian.Uint32(b[25:]),
		ops:         binary.LittleEndian.Uint32(b[29:]),
	}
	copy(h.nonce[:], b[33:])
	b = b[helloFixedBytes:]
	var err error
	if h.name, b, err = cutText(b); err != nil {
		return nil, err
	}
	if h.token, b, err = cutText(b); err != nil {
		return nil, err
	}
	if len(h.name) > maxNameBytes || len(h.token) > maxNameBytes {
		return nil, fmt.Errorf("%w: a name of %d bytes, at most %d", errHello, max(len(h.name), len(h.token)), maxNameBytes)
	}
	h.name = printable([]byte(h.name)) // it goes into logs and errors
	if len(b) < 1 || int(b[0]) > maxAddrs {
		return nil, fmt.Errorf("%w: address list", errHello)
	}
	n := int(b[0])
	b = b[1:]
	for range n {
		var a string
		if a, b, err = cutText(b); err != nil {
			return nil, err
		}
		h.addrs = append(h.addrs, a)
	}
	// A later version may append fields; version 1 ignores them.
	if h.incarnation == 0 || (h.kind != helloDial && h.kind != helloAccept) {
		return nil, errHello
	}
	return h, nil
}

func cutText(b []byte) (string, []byte, error) {
	if len(b) < 1 || len(b) < 1+int(b[0]) {
		return "", nil, fmt.Errorf("%w: text cut short", errHello)
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}

// writeHello writes one message: length, then body.
func writeHello(w io.Writer, body []byte) error {
	if len(body) > maxHelloBytes {
		return fmt.Errorf("fabric: HELLO of %d bytes is over the limit of %d: shorten the element's name or addresses", len(body), maxHelloBytes)
	}
	msg := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err := w.Write(append(msg, body...))
	return err
}

func readHello(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(n[:])
	if size == 0 || size > maxHelloBytes {
		return nil, fmt.Errorf("%w (a first message of %d bytes)", errHello, size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

// proof is the HMAC that shows knowledge of a token; role keeps one side's
// proof from serving as the other's.
func proof(secret []byte, role string, dial, accept []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("wherry hello 1 " + role + "\x00"))
	for _, p := range [][]byte{dial, accept} {
		sum := sha256.Sum256(p)
		m.Write(sum[:])
	}
	return m.Sum(nil)
}

// peerInfo is what HELLO established.
type peerInfo struct {
	hello     *hello
	principal Principal
	token     tokenMark
	id        connID // of the connection
	admitted  uint64 // Element.readmits when its HELLO began
}

func (e *Element) ownHello(kind helloKind) *hello {
	e.mu.Lock()
	addrs := append([]string(nil), e.addrs...)
	e.mu.Unlock()
	h := &hello{kind: kind, versionMin: helloVersion, versionMax: helloVersion, features: e.features(), incarnation: e.incarnation,
		window: uint32(e.cfg.Limits.WindowBytes), ops: uint32(e.cfg.Limits.OpsPerEndpoint), name: e.cfg.Name, addrs: addrs}
	rand.Read(h.nonce[:])
	return h
}

// features are those that this element's HELLO shows.
func (e *Element) features() uint64 {
	f := featurePause
	if !e.cfg.Several {
		f |= featureOne
	}
	if wide.Supported() {
		f |= featureWide
	}
	return f
}

// checkPeer looks at what a peer said of itself, from both sides.
func checkPeer(h *hello) error {
	if h.versionMin > helloVersion || h.versionMax < helloVersion {
		return fmt.Errorf("it speaks protocol versions %d to %d, this element %d: upgrade the older one", h.versionMin, h.versionMax, helloVersion)
	}
	if h.window < 2*MaxFrameBytes {
		return fmt.Errorf("its window of %d bytes is below the least of %d: no message would fit", h.window, 2*MaxFrameBytes)
	}
	return nil
}

// helloAsDialler runs HELLO on a connection we opened, until we know who the peer is. answer is to be sent next.
func (e *Element) helloAsDialler(p Pending) (info *peerInfo, answer []byte, err error) {
	own := e.ownHello(helloDial)
	var secret []byte
	if c := p.Features().Certified; e.cfg.Auth != nil && (c == nil || !c.SelfCertified()) {
		own.token, secret = e.cfg.Auth.Self()
	}
	if len(own.token) > maxNameBytes {
		return nil, nil, fmt.Errorf("fabric: token name of %d bytes: at most %d", len(own.token), maxNameBytes)
	}
	dial := own.encode()
	if err := writeHello(p, dial); err != nil {
		return nil, nil, err
	}
	accept, err := readHello(p)
	if err != nil {
		return nil, nil, fmt.Errorf("no HELLO from %s: %w", p.RemoteAddr(), err)
	}
	if err := refusal(accept); err != nil {
		return nil, nil, err
	}
	body, theirs := accept, []byte(nil)
	if own.token != "" {
		n := max(len(accept)-sha256.Size, 0)
		body, theirs = accept[:n], accept[n:]
		if !hmac.Equal(theirs, proof(secret, "accept", dial, body)) {
			if _, err := decodeHello(accept); err != nil {
				return nil, nil, err
			}
			writeRefusal(p, errWrongSecret) // so that the other side's log can say what is wrong
			return nil, nil, fmt.Errorf("%w: %s does not prove that it knows token %q: is it another cluster's node, does it take no tokens, or is the token file out of date?", ErrRefused, p.RemoteAddr(), own.token)
		}
	}
	h, err := decodeHello(body)
	if err == nil && h.kind != helloAccept {
		err = errHello
	}
	if err == nil {
		err = checkPeer(h)
	}
	if err != nil {
		return nil, nil, err
	}
	answer = []byte{byte(helloProof)}
	if own.token != "" {
		answer = append(answer, proof(secret, "dial", dial, body)...)
	}
	who, isCertified := certified(p)
	if !isCertified {
		who = e.principalOf(p, own.token)
	}
	return &peerInfo{hello: h, principal: who, token: markOf(own.token, secret, !isCertified), id: connIDOf(dial, body)}, answer, nil
}

// principalOf is who a peer without a certificate is that we dialled: whoever proved the token we share is
// the same principal.
func (e *Element) principalOf(p Pending, token string) Principal {
	who := Principal{Name: "anonymous"}
	if token != "" {
		if _, who, _ = e.cfg.Auth.Lookup(token); who.Name == "" {
			who.Name = token
		}
	} else if e.cfg.Auth != nil {
		cred, known := p.PeerCred()
		who, _ = e.cfg.Auth.Anonymous(cred, known)
	}
	return who
}

// certified is who the peer is by what the transport knows, if it does.
func certified(p Pending) (Principal, bool) {
	if c := p.Features().Certified; c != nil {
		return c.PeerPrincipal()
	}
	return Principal{}, false
}

func refusal(b []byte) error {
	switch helloKind(b[0]) { // an accept starts with the magic
	case helloRefuse:
		return fmt.Errorf("%w: %s", ErrRefused, printable(b[1:]))
	case helloTaken:
		return fmt.Errorf("%w: %s", ErrTaken, printable(b[1:]))
	}
	return nil
}

// writeRefusal tells a peer why it may not connect.
func writeRefusal(w io.Writer, why error) error {
	kind, text := helloRefuse, why.Error()
	if errors.Is(why, ErrTaken) {
		kind, text = helloTaken, strings.TrimPrefix(text, ErrTaken.Error()+": ")
	}
	return writeHello(w, append([]byte{byte(kind)}, text...))
}

// printable makes a peer's words safe to show.
func printable(b []byte) string {
	out := make([]rune, 0, len(b))
	for _, r := range string(b) {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

// helloAsAcceptor runs HELLO on a connection a peer opened, until it has proved who it is. Its refusals tell
// the peer why.
func (e *Element) helloAsAcceptor(p Pending) (*peerInfo, error) {
	p.SetDeadline(time.Now().Add(e.cfg.Limits.HelloTime))
	dial, err := readHello(p)
	if err != nil {
		return nil, err
	}
	info, secret, err := e.judge(p, dial)
	if err != nil {
		writeRefusal(p, err)
		return nil, err
	}
	body := e.ownHello(helloAccept).encode()
	accept := body
	if secret != nil {
		accept = append(append([]byte(nil), body...), proof(secret, "accept", dial, body)...)
	}
	if err := writeHello(p, accept); err != nil {
		return nil, err
	}
	answer, err := readHello(p)
	if err != nil {
		return nil, err
	}
	switch kind := helloKind(answer[0]); {
	case kind == helloOther:
		return nil, errOther
	case kind == helloRefuse && secret != nil:
		return nil, fmt.Errorf("%w: %s shows token %q with another secret than this element's", errWrongSecret, orUnnamed(info.hello.name), info.hello.token)
	case kind != helloProof:
		return nil, errHello
	case secret != nil && !hmac.Equal(answer[1:], proof(secret, "dial", dial, body)):
		err := fmt.Errorf("%w: the proof of token %q is wrong: its secret differs from this element's", errWrongSecret, info.hello.token)
		writeRefusal(p, err)
		return nil, err
	}
	info.id = connIDOf(dial, body)
	return info, nil
}

// judge decides on a peer's first message; the error goes to the peer.
func (e *Element) judge(p Pending, dial []byte) (*peerInfo, []byte, error) {
	h, err := decodeHello(dial)
	if err != nil {
		return nil, nil, err
	}
	if h.kind != helloDial {
		return nil, nil, errHello
	}
	if err := checkPeer(h); err != nil {
		return nil, nil, err
	}
	if e.endpointCount() >= e.cfg.Limits.Endpoints {
		return nil, nil, fmt.Errorf("this element has %d endpoints, its limit; try again later", e.cfg.Limits.Endpoints)
	}
	cert, isCertified := certified(p)
	if isCertified && h.token != "" && h.token != cert.Name {
		return nil, nil, fmt.Errorf("the certificate is %q's and the token %q's: show one of them, or two with one name", cert.Name, h.token)
	}
	if isCertified && h.token == "" {
		return &peerInfo{hello: h, principal: cert}, nil, nil
	}
	if e.cfg.Auth == nil {
		return &peerInfo{hello: h, principal: Principal{Name: "anonymous"}}, nil, nil
	}
	if h.token == "" {
		cred, known := p.PeerCred()
		who, ok := e.cfg.Auth.Anonymous(cred, known)
		if !ok {
			return nil, nil, errors.New("this element wants a token and none was shown: give the cluster's token file")
		}
		return &peerInfo{hello: h, principal: who}, nil, nil
	}
	secret, who, ok := e.cfg.Auth.Lookup(h.token)
	if !ok || len(secret) == 0 {
		return nil, nil, fmt.Errorf("token %q is not known here: give the token file of this cluster", h.token)
	}
	if isCertified {
		who = cert // the token must be good, but it adds nothing
	}
	return &peerInfo{hello: h, principal: who, token: markOf(h.token, secret, !isCertified)}, secret, nil
}
