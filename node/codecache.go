package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/internal/codecache"
)

const (
	// cacheProbeTime is how long the disk of the code cache may take to write MinCodeCache: one that is alive takes some ms.
	cacheProbeTime = 3 * time.Second
	cacheProbeName = "probe-*"
)

// codeCache is the directory of the code cache, "" for none. A disk that is full, or broken, or does not answer, is done without:
// functions run all the same, and are compiled again at each start. A path that cannot be one is refused.
func (n *Node) codeCache() (string, error) {
	dir := n.cfg.CodeCache
	if dir == "" {
		return "", nil
	}
	done := make(chan error, 1)
	go func() { done <- probeCache(dir) }() // a disk that does not answer may hold it for ever
	var err error
	select {
	case err = <-done:
	case <-time.After(cacheProbeTime):
		err = fmt.Errorf("%s: the disk has not answered for %v", dir, cacheProbeTime)
	}
	switch {
	case err == nil:
		return dir, nil
	case errors.Is(err, codecache.ErrShared):
		return "", fmt.Errorf("code_cache: %w", err)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EROFS): // as /proc/self
		return "", fmt.Errorf("code_cache: %w: name a directory that this user can write to, or leave code_cache out", err)
	}
	n.log.Error("the code cache cannot be used: starting without it, so functions are compiled again after each start; free or mend its disk and restart the node",
		"code_cache", dir, "err", err)
	return "", nil
}

// probeCache writes the least that a cache holds, down to the disk, and removes it.
func probeCache(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := codecache.Check(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, cacheProbeName)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, MinCodeCache))
	if err == nil {
		err = f.Sync() // some file systems find room only then
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
