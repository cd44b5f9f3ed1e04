package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
)

// helpers are what the test binary can be run again as.
func helpers() map[string]func(args []string) error {
	return map[string]func(args []string) error{
		"dozer":  helperDozer,
		"echo":   helperEcho,
		"flood":  helperFlood,
		"half":   helperHalf,
		"listen": helperListen,
		"sender": helperSender,
		"sink":   helperSink,
		"sleepy": helperSleepy,
	}
}

const (
	ackID  = testID + 1 // answered with the number of frames so far
	doneID = testID + 2 // the peer wants nothing more
)

// linked dials args[0] with r.
func linked(addr string, r *recorder) (*Transport, *link, error) {
	t, err := New(Config{})
	if err != nil {
		return nil, nil, err
	}
	l, err := dial(t, addr, r)
	r.link = l
	return t, l, err
}

// floodBody is frame i of a flood: its number, then a length that varies.
func floodBody(i int) []byte {
	n := i % 90
	if i%64 == 0 {
		n = 3000
	}
	return append(number(i), make([]byte, n)...)
}

// helperFlood sends numbered frames until it is killed.
func helperFlood(args []string) error {
	t, l, err := linked(args[0], &recorder{})
	if err != nil {
		return err
	}
	for i := 0; ; {
		switch err := l.Send(testID, fabric.Normal, nil, floodBody(i)); err {
		case nil:
			i++
		case fabric.ErrLinkFull:
			t.Poll(64, never)
			runtime.Gosched()
		default:
			return err
		}
	}
}

// helperHalf publishes args[1] frames, writes the body of one more that is
// args[2] bytes long, and kills itself before it publishes that.
func helperHalf(args []string) error {
	_, l, err := linked(args[0], &recorder{})
	if err != nil {
		return err
	}
	count, _ := strconv.Atoi(args[1])
	size, _ := strconv.Atoi(args[2])
	for i := range count {
		if err := l.Send(testID, fabric.Normal, nil, floodBody(i)); err != nil {
			return err
		}
	}
	s := &l.tx.slots[l.tx.pos&l.tx.mask]
	if size <= inlineBytes {
		copy(s.body[:], pattern(size, 0xee))
	} else {
		start, _ := l.tx.place(size)
		copy(l.tx.data[start&uint64(len(l.tx.data)-1):], pattern(size, 0xee))
		binary.LittleEndian.PutUint64(s.body[:], start)
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// helperSender sends args[2] frames marked args[1] and ends when told.
func helperSender(args []string) error {
	done := false
	r := &recorder{frame: func(id fabric.FrameID, _ []byte) error { done = id == doneID; return nil }}
	t, l, err := linked(args[0], r)
	if err != nil {
		return err
	}
	defer t.Close()
	who, _ := strconv.Atoi(args[1])
	count, _ := strconv.Atoi(args[2])
	for i := 0; i < count; {
		switch err := l.Send(testID, fabric.Normal, []byte{byte(who)}, floodBody(i)); err {
		case nil:
			i++
		case fabric.ErrLinkFull:
			t.Poll(64, never)
			unix.Nanosleep(&unix.Timespec{Nsec: 20_000}, nil)
		default:
			return err
		}
	}
	for end := time.Now().Add(patience); !done; t.Poll(64, never) {
		if r.lost != nil || time.Now().After(end) {
			return fmt.Errorf("not told to end (lost: %v)", r.lost)
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 100_000}, nil)
	}
	return nil
}

// helperSink takes frames in order and answers ackID with their number.
func helperSink(args []string) error {
	got := 0
	r := &recorder{}
	r.frame = func(id fabric.FrameID, body []byte) error {
		if id == ackID {
			return r.link.Send(ackID, fabric.Reserved, nil, number(got))
		}
		if i := int(binary.LittleEndian.Uint64(body)); i != got {
			return fmt.Errorf("frame %d, want %d", i, got)
		}
		got++
		return nil
	}
	t, _, err := linked(args[0], r)
	if err != nil {
		return err
	}
	defer t.Close()
	for r.lost == nil {
		if err := sleepOn(t, patience); err != nil {
			return err
		}
		for t.Poll(64, never) > 0 {
		}
	}
	return nil
}

var errOverslept = errors.New("slept to the end: a wake-up was lost")

// sleepOn arms t and waits for WaitFD. It fails if nothing wakes it in time.
func sleepOn(t *Transport, limit time.Duration) error {
	defer t.Disarm()
	if t.Arm() {
		return nil
	}
	fds := []unix.PollFd{{Fd: int32(t.WaitFD()), Events: unix.POLLIN}}
	for end := time.Now().Add(limit); ; {
		n, err := unix.Poll(fds, int(time.Until(end).Milliseconds()))
		if n > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return err
		}
		if time.Now().After(end) {
			return errOverslept
		}
	}
}

// dawdle waits for a random time around what arming and sleeping takes.
func dawdle(rnd *rand.Rand) {
	for range rnd.IntN(2000) {
		runtime.KeepAlive(rnd)
	}
	if rnd.IntN(8) == 0 {
		runtime.Gosched()
	}
}

// helperSleepy echoes frames, sleeping between them as often as it can.
func helperSleepy(args []string) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := &recorder{}
	var pending int
	r.frame = func(fabric.FrameID, []byte) error { pending++; return nil }
	t, l, err := linked(args[0], r)
	if err != nil {
		return err
	}
	defer t.Close()
	for r.lost == nil {
		if rnd.IntN(4) > 0 {
			if err := sleepOn(t, patience); err != nil {
				return err
			}
		}
		t.Poll(64, never)
		dawdle(rnd)
		for ; pending > 0; pending-- {
			if err := l.Send(testID, fabric.Normal, nil, nil); err != nil && r.lost == nil && err != fabric.ErrLinkClosed {
				return err
			}
		}
	}
	return nil
}

// helperListen listens at args[0], says so, and waits to be killed.
func helperListen(args []string) error {
	t, err := New(Config{})
	if err != nil {
		return err
	}
	if _, err := listen(t, args[0], func() fabric.Receiver { return &recorder{} }); err != nil {
		return err
	}
	fmt.Println("listening")
	time.Sleep(patience)
	return nil
}
