package lender

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
)

// Spec names a device that is lent.
type Spec struct {
	Class    string // nvme
	Name     string
	Path     string // of a file or a block device
	ReadOnly bool
	Direct   bool // past the page cache
}

// ParseSpec reads nvme=NAME:PATH[,direct][,readonly].
func ParseSpec(text string) (Spec, error) {
	bad := func(format string, args ...any) (Spec, error) {
		return Spec{}, fmt.Errorf("%w: lend %q: %s; it is of the form nvme=NAME:/PATH, and ,direct and ,readonly may follow", device.ErrSpec, text, fmt.Sprintf(format, args...))
	}
	class, rest, ok := strings.Cut(text, "=")
	if !ok || class != "nvme" {
		return bad("the class %q is not known", class)
	}
	name, rest, ok := strings.Cut(rest, ":")
	if !ok {
		return bad("a path is missing")
	}
	if err := cluster.ValidateName(name); err != nil {
		return bad("%v", err)
	}
	path, options, _ := strings.Cut(rest, ",")
	s := Spec{Class: class, Name: name, Path: path}
	if !filepath.IsAbs(path) {
		return bad("the path %q is not absolute", path)
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "":
		case "readonly":
			s.ReadOnly = true
		case "direct":
			s.Direct = true
		default:
			return bad("there is no option %q", option)
		}
	}
	return s, nil
}
