package column

const (
	// FileAlign is what buffers in an aligned file (package dataset/part) begin at a multiple of, as functions map whole pages (fabric.SegmentAlign); as
	// long is the file's head.
	FileAlign = 64 << 10
	// FileTail is how long the end of a file is.
	FileTail = 4 << 10
)

// Places are where the buffers in an aligned file begin, which have these sizes, and how long the file is. An empty one has no place: 0.
func Places(sizes []uint64) (at []uint64, file uint64) {
	next := uint64(FileAlign)
	for _, n := range sizes {
		if n == 0 {
			at = append(at, 0)
			continue
		}
		at = append(at, next)
		next += (n + FileAlign - 1) &^ (FileAlign - 1)
	}
	return at, next + FileTail
}
