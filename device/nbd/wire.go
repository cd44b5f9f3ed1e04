package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Numbers of the protocol.
const (
	magicInit    = 0x4e42444d41474943 // NBDMAGIC
	magicOption  = 0x49484156454f5054 // IHAVEOPT
	magicAnswer  = 0x3e889045565a9
	magicRequest = 0x25609513
	magicReply   = 0x67446698

	flagFixed    = 1 << 0 // of the handshake, both sides'
	flagNoZeroes = 1 << 1

	optExportName = 1
	optAbort      = 2
	optList       = 3
	optInfo       = 6
	optGo         = 7

	repAck         = 1
	repServer      = 2
	repInfo        = 3
	repUnsupported = 1<<31 + 1
	repInvalid     = 1<<31 + 3
	repUnknown     = 1<<31 + 6
	repTooBig      = 1<<31 + 9

	infoExport    = 0
	infoBlockSize = 3

	transHasFlags   = 1 << 0
	transReadOnly   = 1 << 1
	transFlush      = 1 << 2
	transFUA        = 1 << 3
	transTrim       = 1 << 5
	transZeroes     = 1 << 6
	transMultiConn  = 1 << 8
	cmdRead         = 0
	cmdWrite        = 1
	cmdDisconnect   = 2
	cmdFlush        = 3
	cmdTrim         = 4
	cmdZeroes       = 6
	cmdFlagFUA      = 1 << 0
	cmdFlagNoHole   = 1 << 1
	cmdFlagFastZero = 1 << 4

	requestBytes = 28
	optionBytes  = 16
)

// Errors that the protocol has.
const (
	ErrnoPermission uint32 = 1
	ErrnoIO         uint32 = 5
	ErrnoInvalid    uint32 = 22
	ErrnoNoSpace    uint32 = 28
	errnoNotSup     uint32 = 95
	errnoShutdown   uint32 = 108
)

const (
	// MaxRequestBytes bounds the data of a request. Clients are told; those that do not listen send 32 MiB at most, and are cut off.
	MaxRequestBytes = 1 << 20
	// maxOptionBytes bounds the data of an option: an export's name has 4096 bytes at most, and a list of wishes comes with it.
	maxOptionBytes = 16 << 10
	// maxOptions bounds the options of one handshake.
	maxOptions = 64
)

var be = binary.BigEndian

// errBroken: the client does not speak the protocol.
var errBroken = errors.New("nbd: the client breaks the protocol")

// errDone: the client has said that it leaves.
var errDone = errors.New("nbd: the client has left")

// request is what a client wants.
type request struct {
	flags  uint16
	kind   uint16
	handle uint64
	off    uint64
	size   uint32
}

// parseRequest reads a request's head; false: it is not all there.
func parseRequest(b []byte) (q request, ok bool, err error) {
	if len(b) < requestBytes {
		return q, false, nil
	}
	if be.Uint32(b) != magicRequest {
		return q, false, fmt.Errorf("%w: a request begins with %#x", errBroken, be.Uint32(b))
	}
	return request{be.Uint16(b[4:]), be.Uint16(b[6:]), be.Uint64(b[8:]), be.Uint64(b[16:]), be.Uint32(b[24:])}, true, nil
}

// option is one of a handshake.
type option struct {
	kind uint32
	data []byte
	big  bool // its data were more than are read
}

func readOption(r io.Reader) (o option, err error) {
	var b [optionBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return o, err
	}
	if be.Uint64(b[:]) != magicOption {
		return o, fmt.Errorf("%w: an option begins with %#x", errBroken, be.Uint64(b[:]))
	}
	o.kind = be.Uint32(b[8:])
	size := be.Uint32(b[12:])
	if size > maxOptionBytes {
		if size > 1<<20 {
			return o, fmt.Errorf("%w: an option of %d bytes", errBroken, size)
		}
		o.big = true
		_, err := io.CopyN(io.Discard, r, int64(size))
		return o, err
	}
	o.data = make([]byte, size)
	_, err = io.ReadFull(r, o.data)
	return o, err
}

// wishes reads the data of an Info or Go option: a name, and what the client wants to know.
func (o option) wishes() (name string, infos []uint16, err error) {
	bad := fmt.Errorf("%w: option %d of %d bytes", errBroken, o.kind, len(o.data))
	if len(o.data) < 6 {
		return "", nil, bad
	}
	n := be.Uint32(o.data)
	if uint64(n) > uint64(len(o.data)-6) {
		return "", nil, bad
	}
	name = string(o.data[4 : 4+n])
	rest := o.data[4+n:]
	if len(rest) != 2+2*int(be.Uint16(rest)) {
		return "", nil, bad
	}
	for rest = rest[2:]; len(rest) > 0; rest = rest[2:] {
		infos = append(infos, be.Uint16(rest))
	}
	return name, infos, nil
}

// appendAnswer is an answer to an option.
func appendAnswer(b []byte, option, kind uint32, data []byte) []byte {
	b = be.AppendUint64(b, magicAnswer)
	b = be.AppendUint32(b, option)
	b = be.AppendUint32(b, kind)
	b = be.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}
