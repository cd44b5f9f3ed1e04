package wire

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"syscall"
	"testing"

	"github.com/wherry-fabric/wherry/rpc"
)

var attr = Attr{Dev: 1, Ino: 2, Size: 3, Blocks: 4, Mode: fs.ModeDir | 0o755, Nlink: 5, UID: 6, GID: 7, Atime: Time{8, 0}, Mtime: Time{-9, maxNsec}, Ctime: Time{1 << 40, 10}}

// roundTrip sends v through a codec, and checks that bytes more or less are refused.
func roundTrip[T any](t *testing.T, name string, c codec[T], v T) {
	t.Run(name, func(t *testing.T) {
		b, err := c.Append([]byte("x"), v)
		if err != nil {
			t.Fatal(err)
		}
		b = b[1:]
		got, err := c.Decode(v, b)
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Fatalf("%+v came back as %+v, %v", v, got, err)
		}
		for n := range b {
			if _, err := c.Decode(v, b[:n]); !errors.Is(err, ErrMessage) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
		if _, err := c.Decode(v, append(b, 0)); !errors.Is(err, ErrMessage) {
			t.Errorf("a byte too many: %v", err)
		}
	})
}

func TestRoundTrip(t *testing.T) {
	roundTrip(t, "welcome", welcomeCodec(), Welcome{IOBytes: 4096, Calls: 3, LeaseMs: 1000, ReadOnly: true})
	roundTrip(t, "open", openCodec(), OpenRequest{Path: "a/b", Flags: Read | Write | Create, Perm: 0o644})
	roundTrip(t, "opened", openedCodec(), OpenReply{Handle: 1 << 63, Attr: attr})
	roundTrip(t, "handle", handleCodec(), 1<<63)
	roundTrip(t, "count", countCodec(), 1<<31)
	roundTrip(t, "attr", attrCodec(), attr)
	roundTrip(t, "path", pathCodec(), PathRequest{Path: "\xff b", Kind: Dir})
	roundTrip(t, "mkdir", mkdirCodec(), MkdirRequest{Path: "d", Perm: 0o700})
	roundTrip(t, "rename", renameCodec(), RenameRequest{From: "a", To: "b/c"})
	roundTrip(t, "list", listCodec(), ListRequest{Handle: 9, Restart: true})
	roundTrip(t, "listed", listedCodec(), ListReply{Entries: []Entry{{"one", 0, attr}, {"two", maxErrno, Attr{Mode: fs.ModeDir}}}, End: true})
	roundTrip(t, "set", setCodec(), SetRequest{Handle: 1, Path: "p", What: SetSize | SetMtime, Size: 2, Mode: 0o600, Atime: Time{-1, 5}, Mtime: Time{1 << 40, 6}})
	roundTrip(t, "space", spaceCodec(), Space{1, 2, 3, 4, 5, 6})
	t.Run("io", func(t *testing.T) {
		v := IORequest{Handle: 1, Offset: 2, Size: 3, Bulk: &rpc.Bulk{}}
		b, err := ioCodec().Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ioCodec().Decode(v, b)
		if err != nil || got.Handle != 1 || got.Offset != 2 || got.Size != 3 || !got.Bulk.IsNull() {
			t.Errorf("came back as %+v, %v", got, err)
		}
		for n := range b {
			if _, err := ioCodec().Decode(v, b[:n]); !errors.Is(err, ErrMessage) {
				t.Errorf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), MaxPathBytes+1))
	if _, err := pathCodec().Append(nil, PathRequest{Path: long}); !errors.Is(err, ErrMessage) {
		t.Errorf("a long path: %v", err)
	}
	if _, err := listedCodec().Append(nil, ListReply{Entries: make([]Entry, MaxBatch+1)}); !errors.Is(err, ErrMessage) {
		t.Errorf("a large batch: %v", err)
	}
	if _, err := listedCodec().Append(nil, ListReply{Entries: []Entry{{Name: long}}}); !errors.Is(err, ErrMessage) {
		t.Errorf("a long name: %v", err)
	}
	cases := map[string]func() error{
		"unknown flags": func() error { return decoded(openCodec(), OpenRequest{Flags: allFlags + 1}) },
		"unknown kind":  func() error { return decoded(pathCodec(), PathRequest{Kind: Dir + 1}) },
		"unknown set":   func() error { return decoded(setCodec(), SetRequest{What: allSet + 1}) },
		"negative size": func() error { return decoded(attrCodec(), Attr{Size: -1}) },
		"much of a second": func() error {
			return decoded(setCodec(), SetRequest{Mtime: Time{Nsec: maxNsec + 1}})
		},
		"no error number": func() error {
			return decoded(listedCodec(), ListReply{Entries: []Entry{{Errno: maxErrno + 1}}})
		},
		"no calls": func() error { return decoded(welcomeCodec(), Welcome{IOBytes: 4096, LeaseMs: 1000}) },
		"no lease": func() error { return decoded(welcomeCodec(), Welcome{IOBytes: 4096, Calls: 1}) },
		"much at once": func() error {
			return decoded(welcomeCodec(), Welcome{IOBytes: MaxIOBytes + 1, Calls: 1, LeaseMs: 1000})
		},
	}
	for name, f := range cases {
		if err := f(); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func decoded[T any](c codec[T], v T) error {
	b, err := c.Append(nil, v)
	if err == nil {
		_, err = c.Decode(v, b)
	}
	return err
}

func TestErrnoTravels(t *testing.T) {
	answer := Error(syscall.ENOSPC).(*rpc.Error)
	err := Local(&rpc.RemoteError{Code: answer.Code, Text: answer.Text})
	if err != syscall.ENOSPC || Errno(err) != syscall.ENOSPC {
		t.Errorf("ENOSPC came back as %v", err)
	}
	if err := Local(&rpc.RemoteError{Code: rpc.FirstCode + syscallEnoent}); !errors.Is(err, fs.ErrNotExist) || !os.IsNotExist(err) {
		t.Errorf("ENOENT came back as %v", err)
	}
	cases := []struct {
		err  error
		want syscall.Errno
	}{
		{rpc.ErrOutcomeUnknown, syscall.EIO},
		{rpc.ErrDeadline, syscall.EIO},
		{context.DeadlineExceeded, syscall.EIO},
		{rpc.ErrDenied, syscall.EACCES},
		{rpc.ErrNoSuchCall, syscall.ENOSYS},
		{&rpc.RemoteError{Code: rpc.FirstCode + maxErrno + 1}, syscall.EIO},
		{&rpc.RemoteError{Code: rpc.CodeFailed}, syscall.EIO},
		{syscall.ECONNRESET, syscall.EIO}, // of the connection, not of the file
	}
	for _, c := range cases {
		err := Local(c.err)
		if Errno(err) != c.want || !errors.Is(err, c.want) {
			t.Errorf("%v is %v locally, want %v", c.err, err, c.want)
		}
		if _, bare := err.(syscall.Errno); bare {
			t.Errorf("%v looks like an answer of the node", c.err)
		}
	}
	if Local(nil) != nil || Errno(nil) != 0 || Errno(errors.New("x")) != syscall.EIO || Errno(fs.ErrClosed) != syscall.EBADF || Errno(fs.ErrInvalid) != syscall.EINVAL {
		t.Error("Errno of common errors")
	}
}

const syscallEnoent = rpc.Code(syscall.ENOENT)

// FuzzDecode gives every decoder bytes from outside; what they accept must be
// written as the same bytes.
func FuzzDecode(f *testing.F) {
	for i := range decoders {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), bytes.Repeat([]byte{1}, 200))
	}
	b, _ := listedCodec().Append(nil, ListReply{Entries: []Entry{{"a", 1, attr}}})
	f.Add(uint8(4), b)
	b, _ = setCodec().Append(nil, SetRequest{Path: "p", What: SetMtime, Mtime: Time{1 << 40, maxNsec}})
	f.Add(uint8(8), b)
	b, _ = attrCodec().Append(nil, attr)
	f.Add(uint8(10), b)
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		name := decoders[int(which)%len(decoders)]
		again, err := name.back(b)
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("%s: %x became %x", name.name, b, again)
		}
		if err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %x: %v", name.name, b, err)
		}
	})
}

type decoder struct {
	name string
	back func(b []byte) ([]byte, error)
}

func decoderOf[T any](name string, c codec[T]) decoder {
	return decoder{name, func(b []byte) ([]byte, error) {
		var none T
		v, err := c.Decode(none, b)
		if err != nil {
			return nil, err
		}
		return c.Append(nil, v)
	}}
}

var decoders = []decoder{
	decoderOf("welcome", welcomeCodec()), decoderOf("open", openCodec()), decoderOf("opened", openedCodec()),
	decoderOf("list", listCodec()), decoderOf("listed", listedCodec()), decoderOf("path", pathCodec()),
	decoderOf("mkdir", mkdirCodec()), decoderOf("rename", renameCodec()), decoderOf("set", setCodec()),
	decoderOf("space", spaceCodec()), decoderOf("attr", attrCodec()), decoderOf("io", ioCodec()),
}
