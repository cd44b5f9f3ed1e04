package nbd

import (
	"fmt"
	"io"
)

// handshake settles what the client gets.
func (s *Server) handshake(r io.Reader, w io.Writer) error {
	hello := be.AppendUint16(be.AppendUint64(be.AppendUint64(nil, magicInit), magicOption), flagFixed|flagNoZeroes)
	if _, err := w.Write(hello); err != nil {
		return err
	}
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	flags := be.Uint32(b[:])
	if flags&^(flagFixed|flagNoZeroes) != 0 {
		return fmt.Errorf("%w: handshake flags %#x: only the newstyle is spoken", errBroken, flags)
	}
	for range maxOptions {
		o, err := readOption(r)
		if err != nil {
			return err
		}
		answer, done, err := s.answer(o, flags)
		if len(answer) > 0 {
			if _, err := w.Write(answer); err != nil {
				return err
			}
		}
		if err != nil || done {
			return err
		}
	}
	return fmt.Errorf("%w: more than %d options", errBroken, maxOptions)
}

// answer answers an option; done: requests follow.
func (s *Server) answer(o option, flags uint32) (b []byte, done bool, err error) {
	if flags&flagFixed == 0 && o.kind != optExportName { // BusyBox's client is of that time
		return nil, false, fmt.Errorf("%w: option %d of a client that does not speak the fixed newstyle, in which alone options are answered", errBroken, o.kind)
	}
	if o.big {
		return appendAnswer(nil, o.kind, repTooBig, nil), false, nil
	}
	switch o.kind {
	case optExportName: // there is no answer that says no
		if name := string(o.data); name != "" && name != s.name {
			return nil, false, fmt.Errorf("%w: there is no export %.64q", errBroken, name)
		}
		b = be.AppendUint16(be.AppendUint64(nil, s.drive.Size()), s.flags())
		if flags&flagNoZeroes == 0 {
			b = append(b, make([]byte, 124)...)
		}
		return b, true, nil
	case optAbort:
		return appendAnswer(nil, o.kind, repAck, nil), false, errDone
	case optList:
		if len(o.data) > 0 {
			return appendAnswer(nil, o.kind, repInvalid, nil), false, nil
		}
		b = appendAnswer(nil, o.kind, repServer, append(be.AppendUint32(nil, uint32(len(s.name))), s.name...))
		return appendAnswer(b, o.kind, repAck, nil), false, nil
	case optInfo, optGo:
		name, _, err := o.wishes()
		if err != nil {
			return appendAnswer(nil, o.kind, repInvalid, nil), false, nil
		}
		if name != "" && name != s.name {
			return appendAnswer(nil, o.kind, repUnknown, []byte("there is one export, "+s.name)), false, nil
		}
		export := be.AppendUint16(be.AppendUint64(be.AppendUint16(nil, infoExport), s.drive.Size()), s.flags())
		b = appendAnswer(nil, o.kind, repInfo, export)
		sizes := be.AppendUint32(be.AppendUint16(nil, infoBlockSize), uint32(s.drive.BlockBytes()))
		sizes = be.AppendUint32(be.AppendUint32(sizes, 4096), MaxRequestBytes)
		b = appendAnswer(b, o.kind, repInfo, sizes)
		return appendAnswer(b, o.kind, repAck, nil), o.kind == optGo, nil
	}
	return appendAnswer(nil, o.kind, repUnsupported, nil), false, nil
}

// flags are what the export can.
func (s *Server) flags() uint16 {
	f := uint16(transHasFlags | transFlush | transFUA | transTrim | transZeroes | transMultiConn)
	if s.drive.ReadOnly() {
		f |= transReadOnly
	}
	return f
}
