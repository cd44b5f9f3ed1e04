package memcg

import "testing"

// TestLimit: the least limit counts of a group and of those around it.
func TestLimit(t *testing.T) {
	files := map[string]string{
		"/one/memory.limit_in_bytes":     "9223372036854771712\n",
		"/one/a/memory.limit_in_bytes":   "3000\n",
		"/one/a/b/memory.limit_in_bytes": "4000\n",
		"/two/x/memory.max":              "max\n",
		"/two/x/y/memory.max":            "5000\n",
	}
	read := func(path string) string { return files[path] }
	for _, c := range []struct {
		root   Root
		groups string
		want   int64
	}{
		{Root{"/one", 1}, "8:pids:/\n4:memory,x:/a/b\n0::/\n", 3000},
		{Root{"/one", 1}, "4:memory:/\n", 0},
		{Root{"/two", 2}, "1:memory:/a\n0::/x/y\n", 5000},
		{Root{"/two", 2}, "0::/x\n", 0},
		{Root{"/two", 2}, "0::/../../x/y\n", 5000},
		{Root{"/two", 2}, "", 0},
	} {
		if got, ok := c.root.limit(c.groups, read); got != c.want || ok != (c.want > 0) {
			t.Errorf("%+v in %q: %d, %t; want %d", c.root, c.groups, got, ok, c.want)
		}
	}
}
