package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/admin"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
)

// far has the lender serve a guest's queues, in the guest's memory.
type far struct {
	lease *host.Lease
	stop  context.CancelFunc
	group sync.WaitGroup

	mu      sync.Mutex
	keys    map[*fabric.Segment]fabric.Key
	windows map[uint32]*fabric.Segment
	queues  map[uint16]bool
}

// newFar makes what serves one guest. A lease serves one at a time.
func newFar(lease *host.Lease, failed func(error)) Server {
	ctx, stop := context.WithCancel(context.Background())
	f := &far{lease: lease, stop: stop, keys: map[*fabric.Segment]fabric.Key{}, windows: map[uint32]*fabric.Segment{}, queues: map[uint16]bool{}}
	f.group.Go(func() {
		select {
		case <-lease.Over():
			failed(lease.Err())
		case <-ctx.Done():
		}
	})
	return Server{f}
}

// key is one to all of a segment: it is the same for each window, and goes with the segment.
func (f *far) key(seg *fabric.Segment) (fabric.Key, error) {
	if key, has := f.keys[seg]; has {
		return key, nil
	}
	key, err := seg.Key(fabric.RightsAll)
	if err == nil {
		f.keys[seg] = key
	}
	return key, err
}

func (f *far) AddWindow(ctx context.Context, id uint32, seg *fabric.Segment, base, offset, size uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key, err := f.key(seg)
	if err != nil {
		return err
	}
	mapped, err := f.lease.AddWindow(ctx, id, key, device.Place{Base: base, Offset: offset, Size: size})
	if err != nil {
		return err
	}
	f.windows[id] = seg
	if !mapped {
		return errors.Join(fmt.Errorf("the lender maps no %d bytes more: raise its limit MappedBytes, or give the guest less memory", seg.Size()), f.remove(ctx, id))
	}
	return nil
}

func (f *far) RemoveWindow(ctx context.Context, id uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.remove(ctx, id)
}

// remove is RemoveWindow; mu is held. Where the lease is over, the lender lets go of everything by itself.
func (f *far) remove(ctx context.Context, id uint32) error {
	if err := f.lease.RemoveWindow(ctx, id); err != nil && f.lease.Err() == nil && known(err) != nil {
		return err
	}
	seg := f.windows[id]
	delete(f.windows, id)
	if !slices.Contains(slices.Collect(maps.Values(f.windows)), seg) {
		delete(f.keys, seg)
	}
	return nil
}

func (f *far) Create(ctx context.Context, q admin.Queue) error {
	err := f.lease.AddQueue(ctx, queueSpec(q))
	if err == nil {
		f.mu.Lock()
		f.queues[q.ID] = true
		f.mu.Unlock()
	}
	return err
}

func (f *far) Delete(ctx context.Context, id uint16) error {
	if err := f.lease.RemoveQueue(ctx, id); err != nil && known(err) != nil {
		return err
	}
	f.mu.Lock()
	delete(f.queues, id)
	f.mu.Unlock()
	return nil
}

func (f *far) Shadow(ctx context.Context, doorbells, events uint64) error {
	return f.lease.Shadow(ctx, doorbells, events)
}

func (f *far) Ring(offset uint64, v uint32) error { return f.lease.Ring(offset, v) }

// Close takes back what the guest left. What the lender does not let go of in time stays until the lease ends.
func (f *far) Close() {
	f.stop()
	f.group.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	f.Shadow(ctx, 0, 0)
	f.mu.Lock()
	queues, windows := slices.Collect(maps.Keys(f.queues)), slices.Collect(maps.Keys(f.windows))
	f.mu.Unlock()
	for _, id := range queues {
		f.Delete(ctx, id)
	}
	for _, id := range windows {
		f.RemoveWindow(ctx, id)
	}
}
