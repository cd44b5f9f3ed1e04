package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/fabric"
)

// sendTime is how long what was told to nodes has to leave this process.
const sendTime = 50 * time.Millisecond

// suspend stops this process where the terminal asks for that (Ctrl-Z), as it does the program, but tells the nodes before: they would take it for lost, and free
// the program's memory.
func suspend(c *client.Client, done <-chan struct{}) {
	if signal.Ignored(syscall.SIGTSTP) {
		return
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTSTP)
	defer signal.Stop(stops)
	for {
		select {
		case <-stops:
		case <-done:
			return
		}
		if !underShell() {
			continue
		}
		c.Pause(fabric.MaxPause)
		time.Sleep(sendTime)
		unix.Kill(os.Getpid(), syscall.SIGSTOP) // Go's runtime keeps its handler of SIGTSTP once it has one
		time.Sleep(sendTime)                    // it is stopped by then, whichever thread is
		c.Pause(0)
	}
}

// underShell reports whether some shell could make this process's group go on. The kernel does not stop a group by SIGTSTP where there is none, but would by SIGSTOP.
func underShell() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for group, pid := unix.Getpgrp(), os.Getppid(); pid > 0; {
		if s, err := unix.Getsid(pid); err != nil || s != session {
			return false
		}
		if g, err := unix.Getpgid(pid); err != nil || g != group {
			return err == nil
		}
		if pid, err = parent(pid); err != nil {
			return false
		}
	}
	return false
}

// parent is the process that started another one.
func parent(pid int) (parent int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	var state string
	_, err = fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &parent) // its name may have spaces
	return parent, err
}
