package node

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
)

// What a client fills into a graph's windows is checked before others can see it: whoever reads its Arrow file believes the offsets.
func TestGraphOffsetsAreChecked(t *testing.T) {
	for want, offsets := range map[string][]uint64{
		"":                                         {0, 1, 1, 3},
		"offset 0 is 1, behind 0, of 3 values":     {1, 1, 1, 3},
		"offset 2 is 0, behind 1, of 3 values":     {0, 1, 0, 3},
		"offset 1 is 9, behind 0, of 3 values":     {0, 9, 9, 3},
		"its offsets end at 2, there are 3 values": {0, 1, 1, 2},
	} {
		for _, width := range []int{4, 8} {
			var b []byte
			for _, v := range offsets {
				b = append(b, binary.LittleEndian.AppendUint64(nil, v)[:width]...)
			}
			err := checkOffsets(b, uint64(width), 3)
			if got := ""; err != nil && err.Error() != want || err == nil && want != got {
				t.Errorf("%v: %v, want %q", offsets, err, want)
			}
		}
	}
	offsets := []byte{0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0}
	if !names(offsets, []byte("aü")) || names(offsets, []byte("a\xc3\x28")) || names(offsets, []byte("\xc3\xbca")) || !names(nil, nil) {
		t.Error("names are UTF-8 each by itself")
	}
}

// Windows that lie in a file have its places; a file of another size is refused.
func TestWindowsOf(t *testing.T) {
	for _, tc := range []struct {
		sizes    []uint64
		file     int
		writable bool
		want     string
	}{
		{[]uint64{24, 136, 135168}, cluster.FixedFile, true, "65536 in file writable,0,0 writable"},
		{[]uint64{0, 64, 69632}, cluster.FixedFile, false, "0 in file,0,0"},
		{[]uint64{24, 136, 135169}, cluster.FixedFile, false, "with these windows it has 135168"},
		{[]uint64{8, 65537, 8, 0, 0, 0, 0, 0, 331776}, cluster.GraphFile, false, "65536 in file,131072 in file,262144 in file,0 in file,0 in file,0 in file,0 in file,0 in file,0"},
		{[]uint64{24, 100}, -1, true, "0 writable,0 writable"},
	} {
		made, err := windowsOf(tc.sizes, tc.file, tc.writable)
		var got []string
		for _, w := range made {
			s := fmt.Sprint(w.at)
			if w.inFile {
				s += " in file"
			}
			if w.writable {
				s += " writable"
			}
			got = append(got, s)
		}
		if all := strings.Join(got, ","); err == nil && all != tc.want || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %s, %v; want %s", tc.sizes, all, err, tc.want)
		}
	}
}
