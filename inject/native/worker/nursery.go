package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/jail"
)

// Argument is the last one of a nursery's command line.
const Argument = "wherry-native-worker"

// socket is the descriptor by which a nursery hears from the node, as nursery.c has it.
const socket = 3

// MaxMessage bounds a message: MaxWindows and a few more mappings.
const MaxMessage = startBytes + maxMaps*mapBytes

// Map is a part of a worker's memory.
type Map struct {
	Addr, Size uint64
	FD         int // which of the descriptors that come along
	Offset     int64
	Write      bool
	Exec       bool // not both
}

// Start tells a blank worker what it is to be.
type Start struct {
	Maps         []Map
	Entry, Stack uint64
}

// As nursery.c has them.
const (
	startBytes  = 24
	mapBytes    = 32
	maxMaps     = 256
	answerBytes = 8
	mapWrite    = 1
	mapExec     = 2
)

// Encode writes it as nursery.c reads it.
func (s *Start) Encode() ([]byte, error) {
	if len(s.Maps) > maxMaps {
		return nil, fmt.Errorf("a worker with %d mappings, at most %d are possible", len(s.Maps), maxMaps)
	}
	le := binary.LittleEndian
	b := make([]byte, 0, startBytes+len(s.Maps)*mapBytes)
	for _, v := range []uint64{s.Entry, s.Stack, uint64(len(s.Maps))} {
		b = le.AppendUint64(b, v)
	}
	for _, m := range s.Maps {
		rights := uint32(0)
		if m.Write {
			rights |= mapWrite
		}
		if m.Exec {
			rights |= mapExec
		}
		b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, m.Addr), m.Size), uint64(m.Offset))
		b = le.AppendUint32(le.AppendUint32(b, uint32(m.FD)), rights)
	}
	return b, nil
}

// Answer reads a nursery's answer: the process id of a blank worker, whose socket comes with it, or why there is none.
func Answer(b []byte) (pid int, err error) {
	var s Started
	if len(b) != answerBytes {
		if json.Unmarshal(b, &s) == nil && s.Error != "" { // nursery.c does not run
			return 0, errors.New(s.Error)
		}
		return 0, fmt.Errorf("an answer of %d bytes, want %d", len(b), answerBytes)
	}
	if e := binary.LittleEndian.Uint32(b[4:]); e != 0 {
		return 0, unix.Errno(e)
	}
	return int(int32(binary.LittleEndian.Uint32(b))), nil
}

// Started is what a nursery says first, as JSON: whether there can be workers.
type Started struct {
	Error string `json:",omitempty"`
	Note  string `json:",omitempty"` // what the kernel lacks and can be done without
}

// Main makes this process a nursery if it was started as one, and then does not return. Programs that embed a node
// call it first of all, before they open or start anything.
func Main() {
	if len(os.Args) < 2 || os.Args[len(os.Args)-1] != Argument {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "wherry: a nursery of workers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve confines this thread, and has the program in nursery.c take this process's place.
func serve() error {
	runtime.LockOSThread() // what confines a thread stays with it, and with its children
	var first Started
	filter, err := confine(&first)
	if err == nil {
		var program int
		if program, err = executable(filter, os.Getppid()); err == nil {
			if err = tell(first); err != nil {
				return err
			}
			if err = tell(Started{Error: replace(program).Error()}); err == nil {
				_, err = unix.Read(socket, make([]byte, MaxMessage)) // what was asked: left unread, it would break what was told
			}
			return err
		}
	}
	return tell(Started{Error: err.Error()})
}

func tell(s Started) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return unix.Sendmsg(socket, b, nil, nil, unix.MSG_NOSIGNAL)
}

// confine takes from this thread what neither it nor its children need, and gives the filter that those install.
func confine(s *Started) (filter []unix.SockFilter, err error) {
	if Arch == "" {
		return nil, errors.ErrUnsupported
	}
	if err := jail.Supported(); err != nil {
		return nil, err
	}
	if filter, err = jail.Bare(); err == nil {
		s.Note, err = jail.Thread()
	}
	return filter, err
}

// executable makes a program of nursery.c and its settings, in a memfd.
func executable(filter []unix.SockFilter, node int) (fd int, err error) {
	img, err := nurseryOf(nurseryObject, Arch)
	if err != nil {
		return -1, err
	}
	le := binary.LittleEndian
	if err := img.set("nursery_node", le.AppendUint64(nil, uint64(node)), 8); err != nil {
		return -1, err
	}
	if err := img.set("nursery_filter_length", le.AppendUint64(nil, uint64(len(filter))), 8); err != nil {
		return -1, err
	}
	var code []byte
	for _, f := range filter {
		code = append(le.AppendUint16(code, f.Code), f.Jt, f.Jf)
		code = le.AppendUint32(code, f.K)
	}
	if err := img.set("nursery_filter", code, maxFilter); err != nil {
		return -1, err
	}
	// Where vm.memfd_noexec is 1 nothing else can be executed; kernels before 6.3 do not know the flag.
	if fd, err = unix.MemfdCreate("wherry-nursery", unix.MFD_CLOEXEC|unix.MFD_EXEC); err == unix.EINVAL {
		fd, err = unix.MemfdCreate("wherry-nursery", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, fmt.Errorf("a file for the nursery's program (sysctl vm.memfd_noexec must be 0 or 1): %w", err)
	}
	file := img.file()
	if n, err := unix.Write(fd, file); err != nil || n != len(file) {
		unix.Close(fd)
		return -1, fmt.Errorf("writing the nursery's program: %d of %d bytes, %v", n, len(file), err)
	}
	return fd, nil
}

// replace executes a program in place of this one. It returns only if it cannot.
func replace(program int) error {
	empty, none := [1]byte{}, [1]uintptr{}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(program), uintptr(unsafe.Pointer(&empty)), uintptr(unsafe.Pointer(&none)),
		uintptr(unsafe.Pointer(&none)), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("executing the nursery's program: %w", errno)
}
