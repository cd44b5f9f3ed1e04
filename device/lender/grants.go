package lender

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// maxGrants bounds the principals that one device is granted to.
	maxGrants = 1024
	// maxGrantLines bounds a file of grants: those of as many devices as a node may lend, and some that it lent before.
	maxGrantLines = 512 * maxGrants
)

// grants says who may do what with devices, by their names: also with those that are not lent now. It is a value: whoever changes it changes a copy.
type grants map[string]map[string]fabric.Rights

// with is a copy in which one grant is another.
func (g grants) with(name, to string, rights fabric.Rights) (grants, error) {
	of := maps.Clone(g[name])
	if of == nil {
		of = map[string]fabric.Rights{}
	}
	if _, known := of[to]; !known && rights != 0 && len(of) >= maxGrants {
		return nil, fmt.Errorf("%w: %s is granted to %d principals, the most there can be: take one away, or grant to %q", device.ErrLimit, name, maxGrants, cluster.Everyone)
	}
	if of[to] = rights; rights == 0 {
		delete(of, to)
	}
	next := maps.Clone(g)
	if next == nil {
		next = grants{}
	}
	if next[name] = of; len(of) == 0 {
		delete(next, name)
	}
	return next, nil
}

// parseGrant reads a principal and its rights.
func parseGrant(to, text string) (fabric.Rights, error) {
	rights, err := cluster.ParseRights(text)
	if err == nil && to != cluster.Everyone {
		err = cluster.ValidateName(to)
	}
	if err == nil && rights&^(fabric.RightRead|fabric.RightWrite) != 0 {
		err = fmt.Errorf("rights %q: a device has r, rw and none", text)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", device.ErrSpec, err)
	}
	return rights, nil
}

const grantsHead = `# Who may borrow which device of this node: device, principal (a token's or certificate's name, or *), rights (r or rw).
# The node writes this file anew when a grant changes (wherry dev grant); edit it while the node is down.
`

// readGrants reads a file of grants. There is none before the first grant.
func readGrants(path string) (g grants, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe would keep us waiting
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case st.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s has mode %04o, so others could grant themselves devices: chmod 600 %s", path, st.Mode().Perm(), path)
	}
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if n > maxGrantLines {
			return nil, fmt.Errorf("%s has more than %d lines", path, maxGrantLines)
		}
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("%s, line %d: %.80q: it is of the form DEVICE PRINCIPAL RIGHTS", path, n, line)
		}
		rights, err := parseGrant(words[1], words[2])
		if err == nil {
			err = cluster.ValidateName(words[0])
		}
		if err == nil {
			g, err = g.with(words[0], words[1], rights)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
	}
	return g, in.Err()
}

// write replaces the file: after a loss of power it has all of the old grants or all of the new ones.
func (g grants) write(path string) error {
	var text strings.Builder
	text.WriteString(grantsHead)
	for _, name := range slices.Sorted(maps.Keys(g)) {
		for _, to := range slices.Sorted(maps.Keys(g[name])) {
			fmt.Fprintln(&text, name, to, strings.Trim(g[name][to].String(), "-"))
		}
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text.String())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
