package ports

import (
	"fmt"
	"net"
	"testing"
)

// few ports beyond those that Free gives to others.
const fewFirst, few = first + count, 32

// TestFree: the ports differ, lie where they are sought, and can be listened at, all at once.
func TestFree(t *testing.T) {
	list, err := free(few*3/4, fewFirst, few)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != few*3/4 {
		t.Errorf("%d ports", len(list))
	}
	for _, port := range list {
		if port < fewFirst || port >= fewFirst+few {
			t.Errorf("port %d", port)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Error(err)
			continue
		}
		defer l.Close()
	}
}

func TestFreeGivesUp(t *testing.T) {
	if list, err := free(few+1, fewFirst, few); err == nil {
		t.Errorf("%d ports of %d", len(list), few)
	}
}
