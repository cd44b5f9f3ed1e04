package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/dataset"
)

// roots are the directories that files may be loaded from. os.Root resolves
// paths below an open directory, step by step, so that neither ".." nor a symbolic link
// leads out of it, not even one that is changed meanwhile.
type roots struct {
	mu   sync.RWMutex // written only to replace the list
	list []*os.Root
}

// replace takes the directories of next. One that both have stays as it was opened, so that loads from it go on; those from one that
// is gone fail.
func (r *roots) replace(next *roots) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, n := range next.list {
		for j, old := range r.list {
			if sameRoot(old, n) {
				r.list[j], next.list[i] = n, old
			}
		}
	}
	r.list, next.list = next.list, r.list
	next.close()
}

func sameRoot(a, b *os.Root) bool {
	if a.Name() != b.Name() {
		return false
	}
	was, err := a.Stat(".")
	is, err2 := b.Stat(".")
	return err == nil && err2 == nil && os.SameFile(was, is)
}

func openRoots(dirs []string) (*roots, error) {
	r := &roots{}
	for _, dir := range dirs {
		root, err := os.OpenRoot(filepath.Clean(dir))
		if err != nil {
			r.close()
			return nil, fmt.Errorf("data root: %w: %w", control.ErrPath, err)
		}
		r.list = append(r.list, root)
	}
	return r, nil
}

func (r *roots) close() {
	for _, root := range r.list {
		root.Close()
	}
}

// find opens a regular file below one of the roots: an absolute path below the
// root that it names, a relative one below the first that has it.
func (r *roots) find(path string) (*dataset.File, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.list) == 0 {
		return nil, fmt.Errorf("%w: this node has no data roots, so it loads no files of its own; set data_roots in its configuration", control.ErrPath)
	}
	if path == "" || strings.IndexByte(path, 0) >= 0 {
		return nil, fmt.Errorf("%w: %q is not a path", control.ErrPath, path)
	}
	var first error
	for _, root := range r.list {
		rel := filepath.Clean(path)
		if filepath.IsAbs(rel) {
			var err error
			if rel, err = filepath.Rel(root.Name(), rel); err != nil {
				continue
			}
		}
		if !filepath.IsLocal(rel) {
			continue
		}
		f, err := dataset.NewFile(path, func() (*os.File, error) { return root.OpenFile(rel, dataset.ReadFlags, 0) })
		if err == nil {
			return f, nil
		}
		if first == nil || errors.Is(first, fs.ErrNotExist) {
			kind := control.ErrPath
			if errno := syscall.Errno(0); errors.As(err, &errno) { // the path is allowed: the file is missing, or cannot be read
				kind = dataset.ErrInput
			}
			first = fmt.Errorf("%w: %s: %w", kind, path, err)
		}
	}
	if first != nil {
		return nil, first
	}
	return nil, fmt.Errorf("%w: %s is outside of the data roots (%s): the node loads only files below them; move this one there, or start the node with a root that has it (--data-root)", control.ErrPath, path, r.names())
}

// glob finds the regular files below the roots that a pattern names, as find has them, in the order of their names. A path without
// a pattern is one file.
func (r *roots) glob(pattern string) ([]dataset.Input, error) {
	if !strings.ContainsAny(pattern, `*?[`) {
		f, err := r.find(pattern)
		if err != nil {
			return nil, err
		}
		return []dataset.Input{f}, nil
	}
	paths, err := r.match(pattern)
	if err != nil {
		return nil, err
	}
	var out []dataset.Input
	for _, path := range paths {
		f, err := r.find(path)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// match finds the names below the roots that a pattern has, sorted: one at least, and no more than can be loaded at once.
func (r *roots) match(pattern string) (paths []string, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, root := range r.list {
		rel, absolute := filepath.Clean(pattern), filepath.IsAbs(pattern)
		if absolute {
			if rel, err = filepath.Rel(root.Name(), rel); err != nil {
				continue
			}
		}
		if !filepath.IsLocal(rel) {
			continue
		}
		found, err := fs.Glob(root.FS(), filepath.ToSlash(rel))
		if err != nil {
			return nil, fmt.Errorf("%w: %q is no pattern: %w", control.ErrPath, pattern, err)
		}
		for _, path := range found {
			if absolute {
				path = filepath.Join(root.Name(), path)
			}
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: %s: no file below the data roots (%s) has such a name", dataset.ErrInput, pattern, r.names())
	}
	slices.Sort(paths)
	if paths = slices.Compact(paths); len(paths) > dataset.MaxFiles {
		return nil, fmt.Errorf("%w: %s: %d files have such names, at most %d can be loaded at once", dataset.ErrInput, pattern, len(paths), dataset.MaxFiles)
	}
	return paths, nil
}

// names are for messages; mu is held.
func (r *roots) names() string {
	var names []string
	for _, root := range r.list {
		names = append(names, root.Name())
	}
	return strings.Join(names, ", ")
}
