package wire

import (
	"fmt"
)

func welcomeCodec() codec[Welcome] {
	return codec[Welcome]{
		func(b []byte, v Welcome) ([]byte, error) {
			b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, v.IOBytes), v.Calls), v.LeaseMs)
			return appendFlag(b, v.ReadOnly), nil
		},
		func(r *reader) Welcome {
			w := Welcome{IOBytes: r.u32(), Calls: r.u32(), LeaseMs: r.u32(), ReadOnly: r.flag()}
			if r.err == nil && (w.IOBytes == 0 || w.IOBytes > MaxIOBytes || w.Calls == 0 || w.Lease() < MinLease || w.Lease() > MaxLease) {
				r.err = fmt.Errorf("%w: a node that takes %d bytes at once, %d calls, and leases for %v", ErrMessage, w.IOBytes, w.Calls, w.Lease())
			}
			return w
		},
	}
}

func openCodec() codec[OpenRequest] {
	return codec[OpenRequest]{
		func(b []byte, v OpenRequest) ([]byte, error) {
			b = le.AppendUint32(le.AppendUint32(b, uint32(v.Flags)), uint32(v.Perm))
			return appendText(b, v.Path), checkPath(v.Path)
		},
		func(r *reader) OpenRequest {
			v := OpenRequest{Flags: Flags(r.u32()), Perm: r.mode(), Path: r.text(MaxPathBytes)}
			if r.err == nil && v.Flags&^allFlags != 0 {
				r.err = fmt.Errorf("%w: flags %#x", ErrMessage, uint32(v.Flags))
			}
			return v
		},
	}
}

func openedCodec() codec[OpenReply] {
	return codec[OpenReply]{
		func(b []byte, v OpenReply) ([]byte, error) { return v.Attr.append(le.AppendUint64(b, v.Handle)), nil },
		func(r *reader) OpenReply { return OpenReply{r.u64(), r.attr()} },
	}
}

func handleCodec() codec[uint64] {
	return codec[uint64]{
		func(b []byte, v uint64) ([]byte, error) { return le.AppendUint64(b, v), nil },
		func(r *reader) uint64 { return r.u64() },
	}
}

func countCodec() codec[uint32] {
	return codec[uint32]{
		func(b []byte, v uint32) ([]byte, error) { return le.AppendUint32(b, v), nil },
		func(r *reader) uint32 { return r.u32() },
	}
}

func attrCodec() codec[Attr] {
	return codec[Attr]{
		func(b []byte, v Attr) ([]byte, error) { return v.append(b), nil },
		func(r *reader) Attr { return r.attr() },
	}
}

func ioCodec() codec[IORequest] {
	return codec[IORequest]{
		func(b []byte, v IORequest) ([]byte, error) {
			b = le.AppendUint32(le.AppendUint64(le.AppendUint64(b, v.Handle), v.Offset), v.Size)
			return v.Bulk.Append(b)
		},
		func(r *reader) IORequest {
			return IORequest{Handle: r.u64(), Offset: r.u64(), Size: r.u32(), Bulk: r.bulk()}
		},
	}
}

func pathCodec() codec[PathRequest] {
	return codec[PathRequest]{
		func(b []byte, v PathRequest) ([]byte, error) {
			return appendText(append(b, byte(v.Kind)), v.Path), checkPath(v.Path)
		},
		func(r *reader) PathRequest {
			v := PathRequest{Kind: Kind(r.u8()), Path: r.text(MaxPathBytes)}
			if r.err == nil && v.Kind > Dir {
				r.err = fmt.Errorf("%w: kind %d", ErrMessage, v.Kind)
			}
			return v
		},
	}
}

func mkdirCodec() codec[MkdirRequest] {
	return codec[MkdirRequest]{
		func(b []byte, v MkdirRequest) ([]byte, error) {
			return appendText(le.AppendUint32(b, uint32(v.Perm)), v.Path), checkPath(v.Path)
		},
		func(r *reader) MkdirRequest { return MkdirRequest{Perm: r.mode(), Path: r.text(MaxPathBytes)} },
	}
}

func renameCodec() codec[RenameRequest] {
	return codec[RenameRequest]{
		func(b []byte, v RenameRequest) ([]byte, error) {
			return appendText(appendText(b, v.From), v.To), checkPath(v.From, v.To)
		},
		func(r *reader) RenameRequest { return RenameRequest{r.text(MaxPathBytes), r.text(MaxPathBytes)} },
	}
}

func listCodec() codec[ListRequest] {
	return codec[ListRequest]{
		func(b []byte, v ListRequest) ([]byte, error) {
			return appendFlag(le.AppendUint64(b, v.Handle), v.Restart), nil
		},
		func(r *reader) ListRequest { return ListRequest{r.u64(), r.flag()} },
	}
}

func listedCodec() codec[ListReply] {
	return codec[ListReply]{appendList, func(r *reader) ListReply { return r.list() }}
}

func setCodec() codec[SetRequest] {
	return codec[SetRequest]{
		func(b []byte, v SetRequest) ([]byte, error) {
			b = append(le.AppendUint64(b, v.Handle), byte(v.What))
			b = le.AppendUint32(le.AppendUint64(b, v.Size), uint32(v.Mode))
			b = appendTime(appendTime(b, v.Atime), v.Mtime)
			return appendText(b, v.Path), checkPath(v.Path)
		},
		func(r *reader) SetRequest {
			v := SetRequest{Handle: r.u64(), What: Set(r.u8()), Size: r.u64(), Mode: r.mode(),
				Atime: r.time(), Mtime: r.time(), Path: r.text(MaxPathBytes)}
			if r.err == nil && v.What&^allSet != 0 {
				r.err = fmt.Errorf("%w: set %#x", ErrMessage, uint8(v.What))
			}
			return v
		},
	}
}

func spaceCodec() codec[Space] {
	return codec[Space]{
		func(b []byte, v Space) ([]byte, error) {
			b = le.AppendUint32(b, v.BlockBytes)
			for _, n := range [...]uint64{v.Blocks, v.Free, v.Available, v.Files, v.FilesFree} {
				b = le.AppendUint64(b, n)
			}
			return b, nil
		},
		func(r *reader) Space {
			return Space{r.u32(), r.u64(), r.u64(), r.u64(), r.u64(), r.u64()}
		},
	}
}
