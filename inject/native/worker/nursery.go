package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/jail"
	"github.com/wherry-fabric/wherry/internal/stackswitch"
)

// Argument is the last one of a nursery's command line.
const Argument = "wherry-native-worker"

// socket is the descriptor by which a nursery hears from the node.
const socket = 3

// MaxMessage bounds a message: MaxWindows and a few more mappings.
const MaxMessage = 64 << 10

// Map is a part of a worker's memory.
type Map struct {
	Addr, Size uint64
	FD         int // which of the descriptors that come along
	Offset     int64
	Write      bool
	Exec       bool
}

// Start asks a nursery for a worker.
type Start struct {
	Maps         []Map
	Entry, Stack uint64
}

// Started is its answer. The first one comes by itself, and says whether there can be workers.
type Started struct {
	Pid   int    `json:",omitempty"`
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

// serve answers until the node has closed its end.
func serve() error {
	runtime.LockOSThread() // what confines a thread is what its children inherit
	node := os.Getppid()
	n, first := nursery{node: node}, Started{}
	if err := n.confine(&first); err != nil {
		first.Error = err.Error()
	}
	if err := tell(first); err != nil {
		return err
	}
	buf, oob := make([]byte, MaxMessage), make([]byte, unix.CmsgSpace(4*(MaxWindows+8)))
	for {
		size, oobSize, _, _, err := unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if size == 0 {
			return nil
		}
		answer := Started{}
		if answer.Pid, err = n.request(buf[:size], oob[:oobSize]); err != nil {
			answer.Error = err.Error()
		}
		if err := tell(answer); err != nil {
			return err
		}
	}
}

func tell(s Started) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return unix.Sendmsg(socket, b, nil, nil, unix.MSG_NOSIGNAL)
}

type nursery struct {
	node    int
	program *unix.SockFprog // in memory that a child has at the same address
}

func (n *nursery) confine(s *Started) error {
	if !stackswitch.Supported() {
		return errors.ErrUnsupported
	}
	if err := jail.Supported(); err != nil {
		return err
	}
	filter, err := jail.Bare()
	if err != nil {
		return err
	}
	n.program = &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	s.Note, err = jail.Thread()
	return err
}

// request makes a worker.
func (n *nursery) request(message, oob []byte) (pid int, err error) {
	fds, err := descriptors(oob)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		return 0, err
	}
	var s Start
	if err := json.Unmarshal(message, &s); err != nil {
		return 0, err
	}
	if n.program == nil {
		return 0, errors.New("workers cannot be confined here")
	}
	mapped := 0
	defer func() {
		for _, m := range s.Maps[:mapped] {
			if unmapErr := unix.MunmapPtr(at(m.Addr), uintptr(m.Size)); unmapErr != nil {
				panic(unmapErr) // another principal's worker must not find it
			}
		}
	}()
	for _, m := range s.Maps {
		if err := m.place(fds); err != nil {
			return 0, err
		}
		mapped++
	}
	pid, err = stackswitch.Fork(uintptr(s.Entry), uintptr(s.Stack), uintptr(unsafe.Pointer(n.program)), uintptr(n.node))
	runtime.KeepAlive(n.program)
	if err != nil {
		return 0, fmt.Errorf("fork: %w", err)
	}
	return pid, nil
}

func descriptors(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

// at is an address outside the Go heap: this process maps there what it never looks at.
func at(addr uint64) unsafe.Pointer {
	a := uintptr(addr)
	return *(*unsafe.Pointer)(unsafe.Pointer(&a))
}

// place maps m where it says, and nowhere else.
func (m *Map) place(fds []int) error {
	if m.Addr < Base || m.Addr > WindowsEnd || m.Size == 0 || m.Size > WindowsEnd-m.Addr || m.FD < 0 || m.FD >= len(fds) || m.Write && m.Exec {
		return fmt.Errorf("no such mapping: %+v with %d descriptors", *m, len(fds))
	}
	got, err := unix.MmapPtr(fds[m.FD], m.Offset, at(m.Addr), uintptr(m.Size), m.prot(), unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE|unix.MAP_NORESERVE)
	if err == nil && uintptr(got) != uintptr(m.Addr) { // a kernel before 4.17 takes the address for a wish
		err = errors.Join(errors.ErrUnsupported, unix.MunmapPtr(got, uintptr(m.Size)))
	}
	if err != nil {
		return fmt.Errorf("map %d bytes at %#x: %w", m.Size, m.Addr, err)
	}
	return nil
}
