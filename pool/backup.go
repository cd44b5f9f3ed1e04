package pool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/wherry-fabric/wherry/fabric"
)

// A backup is a stream: a head of 32 bytes (magic, version, the head's checksum, how many bytes there are, 8 bytes of zeros), then chunks, in
// order: length, checksum, bytes; a length with its highest bit set is of as many zeros, which are not there. Little-endian, CRC-32C.
const (
	backupMagic   = "wherrybk"
	backupVersion = 1
	backupHead    = 32
	backupChunk   = 1 << 20
	backupZeros   = 1 << 31
)

// ErrBackup: a stream is no backup, or is damaged.
var ErrBackup = errors.New("no backup, or a damaged one")

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Backup writes all bytes to w, in the client: the file is the program's, and a component needs neither its name nor its rights. Bytes that are written at the same
// time are in the backup as they were or as they are then. progress, if it is not nil, hears how many bytes have been read.
func (m *Memory) Backup(ctx context.Context, w io.Writer, progress func(done uint64)) error {
	size := m.view.Load().info.Size
	head := make([]byte, backupHead)
	copy(head, backupMagic)
	binary.LittleEndian.PutUint32(head[8:], backupVersion)
	binary.LittleEndian.PutUint64(head[16:], size)
	binary.LittleEndian.PutUint32(head[12:], castagnoli(head))
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("pool: backup: %w", err)
	}
	var bufs [2][]byte
	var ops [2]Op
	start := func(k int, off uint64) {
		n := min(backupChunk, size-off)
		if bufs[k] == nil {
			bufs[k] = make([]byte, backupChunk)
		}
		bufs[k] = bufs[k][:n]
		ops[k] = m.StartGet(bufs[k], off)
	}
	start(0, 0)
	for off, k := uint64(0), 0; off < size; k = 1 - k {
		buf, op := bufs[k], ops[k]
		next := off + uint64(len(buf))
		if next < size {
			start(1-k, next) // while this one is written
		}
		err := op.Wait(ctx)
		if errors.Is(err, fabric.ErrBackpressure) {
			err = m.Get(ctx, buf, off)
		}
		if err == nil {
			err = writeChunk(w, buf)
		}
		if err != nil {
			if next < size {
				ops[1-k].Forget()
			}
			return fmt.Errorf("pool: backup: %w", err)
		}
		if off = next; progress != nil {
			progress(off)
		}
	}
	return nil
}

func writeChunk(w io.Writer, b []byte) error {
	head := binary.LittleEndian.AppendUint32(make([]byte, 0, 8), uint32(len(b)))
	if len(bytes.TrimLeft(b, "\x00")) == 0 {
		head[3] |= backupZeros >> 24
		b = nil
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint32(head, castagnoli(b))); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// Restore puts a backup's bytes where they were, from offset 0 on: it must fit. Bytes behind them stay. It fails with ErrBackup where the stream is damaged; what came before
// is restored by then.
func (m *Memory) Restore(ctx context.Context, r io.Reader, progress func(done uint64)) error {
	size := m.view.Load().info.Size
	err := readBackup(r, size, func(off uint64, b []byte, zeros uint64) error {
		var err error
		if zeros > 0 {
			err = m.Discard(ctx, off, zeros)
		} else {
			err = m.Put(ctx, b, off)
		}
		if err == nil && progress != nil {
			progress(off + zeros + uint64(len(b)))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("pool: restore: %w", err)
	}
	return nil
}

// readBackup calls put with each chunk: its bytes, or how many zeros it is. What does not fit in size bytes is refused before the first.
func readBackup(from io.Reader, size uint64, put func(off uint64, b []byte, zeros uint64) error) error {
	r := bufio.NewReader(from)
	head := make([]byte, backupHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return fmt.Errorf("%w: %w", ErrBackup, err)
	}
	sum := binary.LittleEndian.Uint32(head[12:])
	clear(head[12:16])
	if string(head[:8]) != backupMagic || sum != castagnoli(head) {
		return fmt.Errorf("%w: it does not begin as one", ErrBackup)
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != backupVersion {
		return fmt.Errorf("%w: version %d, and this program reads %d: use a newer one", ErrBackup, v, backupVersion)
	}
	all := binary.LittleEndian.Uint64(head[16:])
	if all > size {
		return fmt.Errorf("%w: a backup of %d bytes, and there are %d: resize it first", ErrRange, all, size)
	}
	buf := make([]byte, backupChunk)
	for off := uint64(0); off < all; {
		var c [8]byte
		if _, err := io.ReadFull(r, c[:]); err != nil {
			return fmt.Errorf("%w: it ends at %d of %d bytes: %w", ErrBackup, off, all, err)
		}
		n := binary.LittleEndian.Uint32(c[:])
		zeros := n & backupZeros
		n &^= backupZeros
		if n == 0 || n > backupChunk || uint64(n) > all-off {
			return fmt.Errorf("%w: a chunk of %d bytes at %d of %d", ErrBackup, n, off, all)
		}
		b := buf[:n]
		if zeros != 0 {
			b = nil
		}
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("%w: it ends in a chunk at %d of %d bytes: %w", ErrBackup, off, all, err)
		}
		if binary.LittleEndian.Uint32(c[4:]) != castagnoli(b) {
			return fmt.Errorf("%w: the chunk of %d bytes at %d has another checksum", ErrBackup, n, off)
		}
		zeroBytes := uint64(0)
		if zeros != 0 {
			zeroBytes = uint64(n)
		}
		if err := put(off, b, zeroBytes); err != nil {
			return err
		}
		off += uint64(n)
	}
	return nil
}
