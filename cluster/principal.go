package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

// Caps are what a principal may do at an element at all. On a dataset it needs
// a grant too (Catalog).
type Caps uint8

const (
	CapInject Caps = 1 << iota // send functions
	CapRead                    // read datasets it was granted
	CapWrite                   // load datasets, write those it was granted
	CapAdmin                   // everything, to every dataset
	CapMember                  // speak as another element: hand functions on, place shards
	CapDevice                  // borrow devices it was granted

	CapsAll = CapInject | CapRead | CapWrite | CapAdmin | CapMember | CapDevice
)

// The fabric knows members too: an incarnation that a member has shown belongs to members.
var _ = [1]struct{}{}[uint32(CapMember)-fabric.CapMember]

var capNames = []string{"inject", "read", "write", "admin", "member", "device"}

// String lists the capabilities' names with commas between, "none" if there is none.
func (c Caps) String() string {
	var names []string
	for i, name := range capNames {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if rest := c &^ CapsAll; rest != 0 {
		names = append(names, fmt.Sprintf("%#x", uint8(rest)))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// Has reports whether c holds all of want; CapAdmin holds everything but CapMember.
func (c Caps) Has(want Caps) bool {
	if c&CapAdmin != 0 {
		c |= CapsAll &^ CapMember
	}
	return c&want == want
}

// ParseCaps reads names with commas between, or "none".
func ParseCaps(text string) (Caps, error) {
	if text == "none" {
		return 0, nil
	}
	var caps Caps
	for name := range strings.SplitSeq(text, ",") {
		bit := Caps(0)
		for i, known := range capNames {
			if known == name {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return 0, fmt.Errorf("there is no capability %q; %s", clip(name), schema.Suggest(name, capNames))
		}
		if caps&bit != 0 {
			return 0, fmt.Errorf("the capability %q stands twice", name)
		}
		caps |= bit
	}
	return caps, nil
}

// Principal identifies who asks: a name, established by the transport or a token, and
// what it may do here.
type Principal struct {
	Name string `json:"name"`
	Caps Caps   `json:"caps"`
}

// Everyone, as the name in a grant, means every principal.
const Everyone = "*"

// RightsOf is what the capabilities leave of rights on a dataset or a region.
func (c Caps) RightsOf(granted fabric.Rights) fabric.Rights {
	allowed := fabric.Rights(0)
	if c.Has(CapRead) {
		allowed |= fabric.RightRead
	}
	if c.Has(CapWrite) {
		allowed |= fabric.RightWrite | fabric.RightAtomic
	}
	return granted & allowed
}

var (
	// ErrNotFound says that a name is not in the catalogue.
	ErrNotFound = errors.New("cluster: no such dataset")
	// ErrExists says that a name is taken.
	ErrExists = errors.New("cluster: the dataset exists already")
	// ErrVersion says that an entry has changed since, or is newer.
	ErrVersion = errors.New("cluster: the dataset has another version")
	// ErrForbidden says that a principal may not do what it asked for.
	ErrForbidden = errors.New("cluster: not allowed")
	// ErrFull says that a limit of the catalogue is reached.
	ErrFull = errors.New("cluster: the catalogue is full")
	// ErrName says that a name is not valid.
	ErrName = errors.New("cluster: bad name")
)

// ForbiddenError is ErrForbidden with the principal, what it lacks, and for what.
type ForbiddenError struct {
	Principal string // "" is an anonymous one
	Need      string // the right or capability, as in "right read" or "capability write"
	Name      string // of the dataset; "" if it is not about one
	Do        string // what would help
}

func (e *ForbiddenError) Error() string {
	who, what := e.Principal, ""
	if who == "" {
		who = "(anonymous)"
	}
	if e.Name != "" {
		what = fmt.Sprintf(" on dataset %q", e.Name)
	}
	return fmt.Sprintf("%v: %s lacks %s%s: %s", ErrForbidden, who, e.Need, what, e.Do)
}

// Unwrap makes errors.Is(err, ErrForbidden) hold.
func (e *ForbiddenError) Unwrap() error { return ErrForbidden }
