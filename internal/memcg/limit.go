package memcg

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limit is what this process's control groups let it have of the machine's memory; ok is false where none bounds it.
func Limit() (bytes int64, ok bool) {
	root, err := Find()
	if err != nil {
		return 0, false
	}
	read := func(path string) string {
		b, _ := os.ReadFile(path) // what is not there bounds nothing
		return string(b)
	}
	return root.limit(read("/proc/self/cgroup"), read)
}

// unlimited: version 1 says so by a number near the largest.
const unlimited = 1 << 60

// limit is the least limit of the group that groups (/proc/self/cgroup) names, and of those around it.
func (r Root) limit(groups string, read func(path string) string) (bytes int64, ok bool) {
	file, _ := r.files()
	for dir := r.group(groups); ; dir = filepath.Dir(dir) {
		n, err := strconv.ParseInt(strings.TrimSpace(read(filepath.Join(r.Dir, dir, file))), 10, 64)
		if err == nil && n < unlimited && (!ok || n < bytes) {
			bytes, ok = n, true
		}
		if dir == "/" || dir == "." {
			return bytes, ok
		}
	}
}

// group is the path of the process's group below Dir.
func (r Root) group(groups string) string {
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (r.Version == 1 && slices.Contains(strings.Split(f[1], ","), "memory") || r.Version == 2 && f[1] == "") {
			return filepath.Clean("/" + f[2])
		}
	}
	return "/"
}
