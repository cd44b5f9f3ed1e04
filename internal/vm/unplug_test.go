package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// monitor is a QEMU that gives these answers, one for each command.
func monitor(t *testing.T, answers ...string) (v *VM, asked chan string) {
	t.Helper()
	ours, theirs := net.Pipe()
	asked = make(chan string, len(answers))
	done := make(chan struct{})
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
		<-done
	})
	go func() {
		defer close(done)
		dec := json.NewDecoder(theirs)
		for _, a := range answers {
			var req struct{ Execute string }
			if dec.Decode(&req) != nil {
				return
			}
			asked <- req.Execute
			fmt.Fprintln(theirs, a)
		}
	}()
	return &VM{qmp: ours, dec: json.NewDecoder(ours)}, asked
}

const busyAnswer = `{"error": {"class": "GenericError", "desc": "Hot-unplug failed: guest is busy (power indicator blinking)"}}`

// TestUnplugAgain: a device of a guest that is busy with its slot is asked for again, and is back when QEMU says that it is deleted.
func TestUnplugAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, asked := monitor(t, busyAnswer, busyAnswer, `{"return": {}} {"event": "DEVICE_DELETED", "data": {"device": "d"}}`)
	if err := v.Unplug(ctx, "d"); err != nil || len(asked) != 3 {
		t.Errorf("asked %d times: %v", len(asked), err)
	}
	v, asked = monitor(t, `{"error": {"class": "DeviceNotFound", "desc": "Device 'd' not found"}}`)
	if err := v.Unplug(ctx, "d"); err == nil || !strings.Contains(err.Error(), "not found") || len(asked) != 1 {
		t.Errorf("a device that there is not: asked %d times: %v", len(asked), err)
	}
	gone, stop := context.WithCancel(ctx)
	v, _ = monitor(t, busyAnswer)
	time.AfterFunc(time.Millisecond, stop)
	if err := v.Unplug(gone, "d"); err == nil {
		t.Error("it waits beyond its context")
	}
}
