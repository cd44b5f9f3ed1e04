// Package component is the memory side of the pool: the account of what a node lends, and the regions in it.
//
// # Model
//
// Account is one book for all that a node lends, datasets and regions: memory, and a descriptor for each segment. Whatever takes some of it reserves it first.
//
// Component keeps regions, what it has of regions that managers placed, and the items in them. A region is cut into extents, a segment each, of one size: a power of two between MinExtentBytes and MaxExtentBytes, so that
// a region has few of them; the last has what is left. A region that is resized gets more of them, or loses some. A principal's key to an extent is narrowed from the extent's own, one for each set of
// rights, and taken back with a grant or a token. A key to all of an extent with all rights is one that fabric maps.
//
// # Ownership
//
// Segments belong to the Component. It may be used from any goroutine.
package component
