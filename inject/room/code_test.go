package room

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// TestCode: programs and their bytes are bounded, for one principal below what there is for all, and what is dropped is room again.
func TestCode(t *testing.T) {
	c := NewCode("test", 8, 1000)
	admit := func(principal string, bytes uint64, busy error, says string) {
		t.Helper()
		err := c.Admit(principal, bytes)
		if !errors.Is(err, busy) || busy == nil && err != nil || err != nil && !strings.Contains(err.Error(), says) || busy == abi.ErrEngineBusy && errors.Is(err, abi.ErrShareBusy) {
			t.Errorf("%s, %d bytes: %v", principal, bytes, err)
		}
	}
	admit("ada", 751, abi.ErrShareBusy, `the code of 0 programs for "ada" takes 0 bytes, and this one's 751 more, of 750`)
	admit("ada", 750, nil, "")
	admit("bob", 251, abi.ErrEngineBusy, "the code of 1 programs for all takes 750 bytes, and this one's 251 more, of 1000")
	admit("bob", 250, nil, "")
	c.Drop("ada", 750)
	for range 6 {
		admit("ada", 1, nil, "")
	}
	admit("ada", 1, abi.ErrShareBusy, `6 programs are loaded for "ada"`)
	admit("bob", 1, nil, "")
	admit("cid", 1, abi.ErrEngineBusy, "8 programs are loaded for all")
	for range 6 {
		c.Drop("ada", 1)
	}
	c.Drop("bob", 250)
	c.Drop("bob", 1)
	admit("ada", 500, nil, "")
	if err := c.Change("ada", 500, 751); !errors.Is(err, abi.ErrShareBusy) {
		t.Errorf("500 bytes become 751: %v", err)
	}
	admit("bob", 501, abi.ErrEngineBusy, "takes 500 bytes")
	if err := c.Change("ada", 500, 750); err != nil {
		t.Errorf("500 bytes become 750: %v", err)
	}
	admit("bob", 251, abi.ErrEngineBusy, "the code of 1 programs for all takes 750 bytes")
	c.Drop("ada", 750)
	if programs, bytes := c.Usage(); programs != 0 || bytes != 0 || len(c.by) != 0 {
		t.Errorf("%d programs and %d bytes of %d principals are left", programs, bytes, len(c.by))
	}
}
