package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/internal/memfd"
)

// Start exchanges one setup record each way, with descriptors beside it:
// forward the link's memory, the initiator's doorbell and its board; back the
// acceptor's doorbell and board.

const (
	setupMagic   = 0x6d687377 // "wshm"
	setupVersion = 1
	setupBytes   = 256
	reasonBytes  = setupBytes - 34

	// maxSetupFDs is what one message may bring; the kernel closes the rest.
	maxSetupFDs = 4
)

const (
	roleInitiator = 1 + iota
	roleAcceptor
)

// setup is a setup record.
type setup struct {
	role   byte
	geo    geometry
	link   int    // the bit that the receiver sets in the sender's board
	reason string // why the sender refuses the link; empty if it does not
}

func (s setup) encode() []byte {
	b := make([]byte, setupBytes)
	binary.LittleEndian.PutUint32(b, setupMagic)
	binary.LittleEndian.PutUint16(b[4:], setupVersion)
	b[6] = s.role
	binary.LittleEndian.PutUint32(b[8:], uint32(s.geo.slots))
	binary.LittleEndian.PutUint64(b[16:], uint64(s.geo.dataBytes))
	binary.LittleEndian.PutUint32(b[24:], uint32(s.link))
	n := copy(b[34:], s.reason)
	binary.LittleEndian.PutUint16(b[32:], uint16(n))
	return b
}

// decodeSetup reads a peer's record of the given role. A refusal is a record
// too: only its reason counts.
func decodeSetup(b []byte, role byte) (setup, error) {
	if len(b) != setupBytes {
		return setup{}, fmt.Errorf("%w: a setup record of %d bytes, want %d", ErrProtocol, len(b), setupBytes)
	}
	if m := binary.LittleEndian.Uint32(b); m != setupMagic {
		return setup{}, fmt.Errorf("%w: setup record begins with %#08x, want %#08x", ErrProtocol, m, setupMagic)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != setupVersion {
		return setup{}, fmt.Errorf("%w: it lays out shared memory in version %d, this side in version %d: run the same release on both", ErrProtocol, v, setupVersion)
	}
	if b[6] != role {
		return setup{}, fmt.Errorf("%w: setup record of role %d, want %d: both sides dialled or both accepted", ErrProtocol, b[6], role)
	}
	n := int(binary.LittleEndian.Uint16(b[32:]))
	if n > reasonBytes {
		return setup{}, fmt.Errorf("%w: a reason of %d bytes, at most %d fit", ErrProtocol, n, reasonBytes)
	}
	s := setup{role: role, reason: string(b[34:][:n])}
	if n > 0 {
		return s, nil
	}
	slots, data, link := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint32(b[24:])
	if slots > maxSlots || data > maxDataBytes || link >= boardWords*64 {
		return setup{}, fmt.Errorf("%w: setup record out of range: %d slots, %d data bytes, bit %d", ErrProtocol, slots, data, link)
	}
	s.geo, s.link = geometry{int(slots), int(data)}, int(link)
	if err := s.geo.validate(); err != nil {
		return setup{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return s, nil
}

// sendSetup writes s with fds beside it.
func sendSetup(conn *net.UnixConn, s setup, fds ...int) error {
	b := s.encode()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	if err != nil {
		return fmt.Errorf("shm: send the setup record: %w", err)
	}
	return nil
}

// recvSetup reads the peer's record, which must come with want descriptors
// unless it is a refusal. The caller owns them; on an error there are none.
func recvSetup(conn *net.UnixConn, role byte, want int) (s setup, fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	b := make([]byte, setupBytes)
	oob := make([]byte, unix.CmsgSpace(4*maxSetupFDs))
	for at := 0; at < len(b); {
		n, oobn, flags, _, err := conn.ReadMsgUnix(b[at:], oob)
		got, perr := parseRights(oob[:oobn])
		fds = append(fds, got...)
		switch {
		case n == 0 && (err == nil || errors.Is(err, io.EOF)):
			return setup{}, fds, fmt.Errorf("%w: it hung up after %d of %d bytes of its setup record", ErrPeerGone, at, len(b))
		case err != nil:
			return setup{}, fds, fmt.Errorf("shm: receive the setup record: %w", err)
		case perr != nil:
			return setup{}, fds, perr
		case flags&unix.MSG_CTRUNC != 0 || len(fds) > maxSetupFDs:
			return setup{}, fds, fmt.Errorf("%w: too many descriptors with the setup record, or this process has no free ones (ulimit -n)", ErrProtocol)
		}
		at += n
	}
	if s, err = decodeSetup(b, role); err != nil {
		return s, fds, err
	}
	if s.reason != "" {
		return s, fds, fmt.Errorf("shm: peer refused the link: %q", s.reason)
	}
	if len(fds) != want {
		return s, fds, fmt.Errorf("%w: %d descriptors with the setup record, want %d", ErrProtocol, len(fds), want)
	}
	return s, fds, nil
}

// parseRights takes the descriptors out of control messages.
func parseRights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrProtocol, err)
	}
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, err := unix.ParseUnixRights(&msgs[i])
		fds = append(fds, got...)
		if err != nil {
			return fds, fmt.Errorf("%w: control message: %w", ErrProtocol, err)
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// mapPeer maps size bytes of a memfd that a peer sent. Huge pages are refused:
// they can run out after the mapping was made, and that kills the process.
func mapPeer(fd, size int, what string) ([]byte, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return nil, fmt.Errorf("%w: its %s: fstatfs: %w", ErrProtocol, what, err)
	}
	if st.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("%w: its %s is no memfd of ordinary pages (file system type %#x)", ErrProtocol, what, st.Type)
	}
	mem, err := memfd.Map(fd, int64(size), true)
	if err != nil {
		return nil, fmt.Errorf("%w: its %s: %w", ErrProtocol, what, err)
	}
	return mem, nil
}

// checkDoorbell makes sure that fd is an eventfd: whatever else a peer
// passes would be written with this process's rights, or block it.
func checkDoorbell(fd int) error {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fmt.Errorf("shm: cannot tell what a peer sent as doorbell; is /proc mounted? %w", err)
	}
	if name != "anon_inode:[eventfd]" {
		return fmt.Errorf("%w: its doorbell is %q and no eventfd", ErrProtocol, name)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("shm: doorbell: %w", err)
	}
	return nil
}
