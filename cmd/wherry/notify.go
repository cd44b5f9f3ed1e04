package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// States that a service manager is told of (sd_notify(3)).
const (
	stateReady    = "READY=1"
	stateStopping = "STOPPING=1"
)

// notify tells the service manager that started this program of a state, if it asked for that ($NOTIFY_SOCKET, as systemd sets
// with Type=notify and notify-reload).
func notify(log *slog.Logger, state string) {
	addr := os.Getenv("NOTIFY_SOCKET")
	if addr == "" {
		return
	}
	if addr[0] == '@' { // an abstract socket
		addr = "\x00" + addr[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		c.Close()
	}
	if err != nil {
		log.Warn("the service manager was not told", "state", state, "err", err)
	}
}

// stateReloading says when the reload began, so that the manager takes no READY from before for its end.
func stateReloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}
