package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// writeTo writes an answer to a file or standard output.
func (a *app) writeTo(name string, write func(io.Writer) error) error {
	if name == "-" || name == "" {
		return write(a.out)
	}
	return writeFile(name, write)
}

// checkOut says early what would keep writeFile from writing, before minutes were
// spent on what is to be written; and that it is one of the files that the command reads, by
// whatever name, since what is written replaces it. Those that are not there are passed over.
func checkOut(name string, reads ...string) error {
	if name == "-" || name == "" {
		return nil
	}
	switch info, err := os.Stat(name); {
	case err == nil && info.IsDir():
		return usagef("%s is a directory: name a file to write", name)
	case err == nil && info.Mode().IsRegular(): // a terminal has nothing to lose
		for _, in := range reads {
			if from, err := os.Stat(in); err == nil && os.SameFile(from, info) {
				return usagef("%s is both read and written, and would be lost: name another file to write", in)
			}
		}
		return nil
	case err == nil:
		return nil
	}
	switch info, err := os.Stat(filepath.Dir(name)); {
	case err != nil:
		return usagef("%s cannot be written: %w", name, err)
	case !info.IsDir():
		return usagef("%s cannot be written: %s is not a directory", name, filepath.Dir(name))
	}
	return nil
}

// writeFile writes a file whole, or leaves what was there. What is no regular
// file (a pipe, a device) is written as it comes.
func writeFile(path string, write func(io.Writer) error) error {
	if err := checkOut(path); err != nil {
		return err
	}
	real := path
	mode := os.FileMode(0o666) // less the process's umask
	old, err := os.Stat(path)
	if err == nil && !old.Mode().IsRegular() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	if err == nil { // it keeps its place behind links, and its mode
		mode = old.Mode().Perm()
		if real, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(fmt.Sprintf("%s.%016x.part", real, rand.Uint64()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, bare(err))
	}
	defer os.Remove(file.Name()) // fails once it has its name
	err = write(file)
	if err == nil && old != nil {
		err = file.Chmod(mode)
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(file.Name(), real); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, bare(err))
	}
	return nil
}

// bare drops from an error of package os the names of files that the user did not give.
func bare(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}
