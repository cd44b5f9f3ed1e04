package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrPeers says that a list of members is not valid; the message says why.
var ErrPeers = errors.New("cluster: bad list of peers")

const (
	// MaxMembers bounds a static list of members.
	MaxMembers = MaxElements
	// MaxAddrs bounds the addresses of one member: one per transport and network.
	MaxAddrs = 8
	// MaxAddrBytes bounds an address: a Unix socket's path is shorter, a DNS name at most 253.
	MaxAddrBytes = 300
	// MaxNameBytes bounds the name of an element, a dataset, a principal.
	MaxNameBytes = 128
	// maxLineBytes bounds a line of a token file.
	maxLineBytes = 8 << 10
)

// Member is an element that can be dialled.
type Member struct {
	Name  string   `json:"name"`
	Addrs []string `json:"addrs"` // "scheme://rest", the preferred one first
}

// ValidateName checks the name of an element, dataset or principal: letters,
// digits and . _ - / , at most MaxNameBytes, the first a letter, digit or _,
// without empty, "." or ".." parts between slashes.
func ValidateName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("the name %q has %d bytes, at most %d are allowed", clip(name), len(name), MaxNameBytes)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		plain := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !plain && (i == 0 || c != '.' && c != '-' && c != '/') {
			return fmt.Errorf("the name %q must be letters, digits and . _ - /, and start with a letter, digit or _", name)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("the name %q has a part %q between slashes", name, part)
		}
	}
	return nil
}

// ValidateAddr checks the form of an address. What a transport wants of its own is checked by fabric.Schemes.Check.
func ValidateAddr(addr string) error {
	if len(addr) > MaxAddrBytes {
		return fmt.Errorf("the address %q has %d bytes, at most %d are allowed", clip(addr), len(addr), MaxAddrBytes)
	}
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok || scheme == "" || rest == "" {
		return fmt.Errorf("the address %q is not scheme://…, as in tcp://host:7000", addr)
	}
	for i := 0; i < len(scheme); i++ {
		if c := scheme[i]; (c < 'a' || c > 'z') && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return fmt.Errorf("the address %q has a scheme that is not lower-case letters and digits", addr)
		}
	}
	for i := 0; i < len(rest); i++ {
		if rest[i] <= ' ' || rest[i] == 0x7f || rest[i] == ',' {
			return fmt.Errorf("the address %q has a space, comma or control character in it", addr)
		}
	}
	return nil
}

// Validate checks the member's name and addresses.
func (m *Member) Validate() error {
	if err := ValidateName(m.Name); err != nil {
		return err
	}
	if len(m.Addrs) == 0 {
		return fmt.Errorf("%s has no address", m.Name)
	}
	if len(m.Addrs) > MaxAddrs {
		return fmt.Errorf("%s has %d addresses, at most %d are allowed", m.Name, len(m.Addrs), MaxAddrs)
	}
	for _, a := range m.Addrs {
		if err := ValidateAddr(a); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

// ParsePeers reads a static list such as "a=tcp://10.0.0.1:7000,b=tcp://10.0.0.2:7000".
// A name may stand several times, once per address. Members come out sorted by name.
func ParsePeers(list string) ([]Member, error) {
	var p peerList
	for i, entry := range strings.Split(list, ",") {
		entry = strings.TrimSpace(entry)
		name, addr, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%w: entry %d: %q is not name=address", ErrPeers, i+1, clip(entry))
		}
		if err := p.add(strings.TrimSpace(name), strings.TrimSpace(addr)); err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", ErrPeers, i+1, err)
		}
	}
	slices.SortFunc(p.list, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return p.list, nil
}

// peerList gathers members while their list is read.
type peerList struct {
	list  []Member
	index map[string]int    // of a name in list
	addrs map[string]string // address to name
}

func (p *peerList) add(name, addr string) error {
	if p.index == nil {
		p.index, p.addrs = map[string]int{}, map[string]string{}
	}
	if err := ValidateName(name); err != nil {
		return err
	}
	if err := ValidateAddr(addr); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if other, ok := p.addrs[addr]; ok {
		return fmt.Errorf("%s: the address %s is given to %s already", name, addr, other)
	}
	p.addrs[addr] = name
	i, ok := p.index[name]
	if !ok {
		if i = len(p.list); i == MaxMembers {
			return fmt.Errorf("more than %d members", MaxMembers)
		}
		p.index[name] = i
		p.list = append(p.list, Member{Name: name})
	}
	if len(p.list[i].Addrs) == MaxAddrs {
		return fmt.Errorf("%s has more than %d addresses", name, MaxAddrs)
	}
	p.list[i].Addrs = append(p.list[i].Addrs, addr)
	return nil
}
