package tcp

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/wherry-fabric/wherry/fabric"
)

// Scheme is the transport as programs choose it.
func Scheme() fabric.Scheme {
	return fabric.Scheme{
		Name: "tcp", Example: "tcp://127.0.0.1:7000",
		New:   func(c fabric.Credentials) (fabric.Transport, error) { return New(Config{TLS: c}) },
		Check: checkPlace, Host: listenHost,
		Here:  func(string, string) string { return "tcp://127.0.0.1:0" },
		Probe: "loopback", For: "transport tcp on this machine", Do: "bring the loopback interface up: ip link set lo up", Vital: true,
	}
}

var errPlace = errors.New("is not tcp://host:port")

// checkPlace: a host and a port from 1 to 65535.
func checkPlace(place string) error {
	host, port, err := net.SplitHostPort(place)
	if err != nil || host == "" {
		return errPlace
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("has the port %q, want a number from 1 to 65535", port)
	}
	return nil
}

// listenHost is the host of host:port; the port may be 0, which is any that is free, or have a name.
func listenHost(place string) (string, error) {
	host, port, err := net.SplitHostPort(place)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPlace, err)
	}
	return host, nil
}
