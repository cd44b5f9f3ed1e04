package wide

import (
	"sync"
	"testing"
	"unsafe"
)

// TestCompareSwap: many at once lose none of each other's additions, and nobody sees halves of two values.
func TestCompareSwap(t *testing.T) {
	if !Supported() {
		t.Log("this processor cannot do it")
		return
	}
	room := make([]uint64, 3)
	p := unsafe.Pointer(&room[0])
	if uintptr(p)%16 != 0 {
		p = unsafe.Pointer(&room[1])
	}
	const workers, each = 4, 5000
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range each {
				for now := (*(*[2]uint64)(p)); ; {
					was := CompareSwap(p, now, [2]uint64{now[0] + 1, now[1] - 1})
					if was == now {
						break
					}
					if was[0]+was[1] != 0 {
						t.Errorf("halves of two values: %d, %d", was[0], was[1])
						return
					}
					now = was
				}
			}
		})
	}
	work.Wait()
	if was := CompareSwap(p, [2]uint64{1}, [2]uint64{}); was[0] != workers*each || was[0]+was[1] != 0 {
		t.Errorf("%d, %d after %d additions", was[0], was[1], workers*each)
	}
}
