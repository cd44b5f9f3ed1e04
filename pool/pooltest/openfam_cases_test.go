package pooltest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// famTest is a case of a program, by its name there. Its check is the program's where it has none of its own.
type famTest struct {
	name   string
	check  func(f *fam)
	reason string // why nothing of it runs
}

// More reasons.
const (
	noNaming = "a backup is a file of the program's own (Memory.Backup writes to any io.Writer): it is listed and removed as files are"
	noGlobal = "descriptors made from numbers: an address says where bytes are, and gives no rights (TestItemRights)"
	noCount  = "OpenFAM itself leaves it out; there is no bound on how often a region is resized"
)

// famTests are the cases of OpenFAM's programs, by their names.
func famTests() map[string][]famTest {
	all := famAtomics()
	maps.Copy(all, famOthers())
	maps.Copy(all, famNone())
	all["fam_stat_reg_test_shm"] = all["fam_stat_reg_test"]
	return all
}

// famNone are the cases of the programs of which nothing runs, each for its program's reason.
func famNone() map[string][]famTest {
	of := func(reason string, names ...string) (out []famTest) {
		for _, name := range names {
			out = append(out, famTest{name: name, reason: reason})
		}
		return out
	}
	return map[string][]famTest{
		"fam_context_mt_reg_test": of(noContexts, "FamContextOpenCloseMultithreaded", "FamContextOpenCloseMultithreadedStressTest", "FamContextWithIOMt", "FamContextWithIOMtStressTest", "FamContextSimulMt"),
		"fam_context_reg_test": of(noContexts, "FamContextOpenCloseStressTest", "FamContextOpenCloseWithIOOperation", "FamContextOpenCloseWithIOOperationStressTest",
			"FamContextSimultaneousOpenCloseStressTest", "FamContextNegativeTest", "FamContextAllDataPathOpsIOTest", "FamContextAllAtomicsIOTest"),
		"fam_put_get_region_ctx_reg_test":              of(noContexts, "PutGetRegionCtxSuccess"),
		"fam_put_get_user_desc_reg_test":               of(noBuffers, "PutGetSuccess"),
		"fam_register_local_buffer_reg_test":           of(noBuffers, "DefaultBufferIO", "LocalBufferIO", "PartiallyOverlappedBufferRegistration"),
		"fam_runtime_pmi2_abort_reg_test":              of(noRuntime, "PMI2Abort"),
		"fam_runtime_pmix_abort_reg_test":              of(noRuntime, "PMIxAbort"),
		"fam_runtime_pmix_reg_test":                    of(noRuntime, "PMIxSuccess"),
		"fam_scatter_gather_index_user_desc_reg_test":  of(noBuffers, "ScatterGatherIndexBlockSuccess"),
		"fam_scatter_gather_stride_user_desc_reg_test": of(noBuffers, "ScatterGatherStrideBlockSuccess"),
		"fam_ops_reg_test":                             of(noInternal, "FamOpsLibfabricInternal.FamUnimplemented", "FamOpsNvmmInternal.FamUnimplemented"),
		"fam_metadata_reg_test":                        of(noInternal, "RegionSuccess", "RegionFail", "DataitemSuccess", "DataitemFail"),
	}
}

// famOthers are the cases of the programs that are not about atomics, threads or interleaved items.
func famOthers() map[string][]famTest {
	same := func(names ...string) (out []famTest) {
		for _, name := range names {
			out = append(out, famTest{name: name})
		}
		return out
	}
	return map[string][]famTest{
		"fam_allocator_reg_test": {{name: "AllocatorSuccess", check: (*fam).allocator}},
		"fam_map_reg_test":       same("PutGetSuccess"),
		"fam_resize_reg_test": {{name: "ResizeSuccess"}, {name: "MultiAllocationMultiResizeSuccess", check: (*fam).resizeMany}, {name: "MultiAllocationMultiResizeFail", reason: noCount},
			{name: "MultiPeAllocationResizeSuccess", check: (*fam).resizeOther}, {name: "ResizeNoPerm", check: (*fam).resizeForbidden}},
		"fam_backup_restore": same("BackupSuccess", "RestoreSuccess"),
		"fam_backup_restore_reg_test": {{name: "BackupSuccess"}, {name: "BackupFailureInvDataItem", check: (*fam).backupGone}, {name: "BackupFailureInvBackupName", check: (*fam).backupUnwritable},
			{name: "RestoreSuccess"}, {name: "CreateDataitemRestoreSuccess", check: (*fam).restoreNew}, {name: "RestoreFailureNonExistentBackup", check: (*fam).restoreNothing},
			{name: "RestoreFailureInsufficientDataSize", check: (*fam).restoreSmaller}, {name: "ListBackupSuccess", reason: noNaming}, {name: "ListBackupAllSuccess", reason: noNaming},
			{name: "ListBackupFailure", reason: noNaming}, {name: "DeleteBackupSuccess", reason: noNaming}, {name: "DeleteBackupFailure", reason: noNaming}},
		"fam_compare_swap_atomics_reg_test": {{name: "CompareSwapInt32Success", check: typed("int32")}, {name: "CompareSwapInt64Success", check: typed("int64")},
			{name: "CompareSwapUint32Success", check: typed("uint32")}, {name: "CompareSwapUint64Success", check: typed("uint64")},
			{name: "CompareSwapInt128Success", check: (*fam).wide}, {name: "CompareSwapNegativeCaseSuccess"}, {name: "CompareSwapNegativeCaseInt128Success", check: (*fam).wide}},
		"fam_nonfetch_logical_atomics_reg_test": {{name: "NonfetchLogicalAtomicUint32Success", check: typed("uint32")}, {name: "NonfetchLogicalAtomicUint64Success", check: typed("uint64")},
			{name: "NonfetchLogicalAtomicInvalidDescriptor", check: (*fam).keys}},
		"fam_swap_reg_test": {{name: "SwapInt32Success", check: typed("int32")}, {name: "SwapInt64Success", check: typed("int64")}, {name: "SwapUint32Success", check: typed("uint32")},
			{name: "SwapUint64Success", check: typed("uint64")}, {name: "SwapFloatSuccess", check: typed("float32")}, {name: "SwapDoubleSuccess", check: typed("float64")}},
		"fam_barrier_reg_test": {{name: "BarrierAllSuccess", reason: noRuntime}},
		"fam_close_mt":         same("MultiThread"),
		"fam_close_simple": {{name: "Basic"}, {name: "ReuseDescriptorAfterClose"}, {name: "ReOpenAfterClose", check: (*fam).reopens},
			{name: "FamCloseAfterDeallocate", check: (*fam).keys}},
		"fam_control_path_reg_test": {{name: "CreateDestroyRegion", check: (*fam).manyRegions}, {name: "FamAllocateDellocateMultiple1", check: (*fam).manyItems},
			{name: "RegionChangePermission", check: (*fam).grantsRegion}, {name: "DataItemChangePermission", check: (*fam).permissions}, {name: "FamResizeRegion", check: (*fam).resize}},
		"fam_copy_reg_test": {{name: "CopySuccess", check: (*fam).copyLengths}, {name: "CopyFailSrcOutOfRange", check: copyFails(famBytes+2, 0, 13)},
			{name: "CopyFailDstOutOfRange", check: copyFails(0, famBytes+2, 13)}, {name: "CopyFailLenOutOfRange", check: copyFails(0, famBytes-2, 13)},
			{name: "CopyWithinSameRegionSuccess"}},
		"fam_dataitem_interleave_test": {{name: "PutGetSuccess"}, {name: "PutGetNonblockSuccess", check: interleaved((*fam).started)},
			{name: "ScatterGatherStrideBlockSuccess", check: interleaved((*fam).scatter)}, {name: "ScatterGatherStrideNonblockSuccess", check: interleaved(many((*fam).scatter))},
			{name: "ScatterGatherIndexBlockSuccess", check: interleaved((*fam).scatter)}, {name: "ScatterGatherIndexNonblockSuccess", check: interleaved(many((*fam).scatter))},
			{name: "Copy", check: interleaved((*fam).copies)}},
		"fam_fence_reg_test":          same("FenceSuccess"),
		"fam_initialize_reg_test":     {{name: "InitializeSuccess", reason: noOptions}, {name: "InitializeNullTest", reason: noOptions}},
		"fam_invalid_offset_reg_test": same("InvalidOffsetSuccess"),
		"fam_invalidkey_reg_test":     same("InvalidKeySuccess"),
		"fam_mm_reg_test": {{name: "FamCreateDestroySuccess", check: (*fam).names}, {name: "FamAllocateDeallocateSuccess"}, {name: "FamAllocateDeallocateBignameSuccess", check: (*fam).longNames},
			{name: "FamAllocateSameSuccess"}, {name: "FamCheckPermissionSuccess", check: (*fam).permissions}, {name: "FamCreateSameRegionDestroysSuccess", check: (*fam).sameRegion},
			{name: "FamAllocateMultipleItemsSameHeapSuccess", check: (*fam).manyItems}, {name: "FamAllocateUnnamedItemSuccess", check: (*fam).unnamed},
			{name: "FamCreateGreaterBignameRegionFailure", check: (*fam).longNames}, {name: "FamCreateBignameRegionDestroySuccess", check: (*fam).longNames},
			{name: "FamCreateDestroyMultipleSuccess", check: (*fam).names}, {name: "FamCreateSameRegionDestroySuccess", check: (*fam).sameRegion}},
		"fam_noperm_reg_test": same("NoPermSuccess"),
		"fam_put_get_negative_test": {{name: "PutGetFail", check: (*fam).putGetFails}, {name: "ScatterGatherIndexFail", check: (*fam).scatterFails},
			{name: "ScatterGatherStrideFail", check: (*fam).scatterFails}},
		"fam_put_get_quiet_nonblock_reg_test":         same("PutGetNonblockSuccess"),
		"fam_put_get_reg_test":                        same("PutGetSuccess"),
		"fam_put_getblocking_reg_test":                same("PutGetSuccess"),
		"fam_region_registration_basic":               same("Basic"),
		"fam_region_registration_resize":              {{name: "RegionRegistrationResize", check: (*fam).resizeMany}},
		"fam_scatter_gather_index_blocking_reg_test":  same("ScatterGatherIndexBlockSuccess"),
		"fam_scatter_gather_stride_blocking_reg_test": same("ScatterGatherStrideBlockSuccess"),
		"fam_scatter_gather_nonblocking_mt_reg_test":  same("ScatterGatherIndexNonblockSuccess", "ScatterGatherStrideNonblockSuccess"),
		"fam_scatter_gather_blocking_mt_reg_test":     same("ScatterGatherIndexBlockSuccess", "ScatterGatherStrideBlockSuccess"),
		"fam_size_reg_test":                           same("PutGetSuccess"),
		"fam_stat_reg_test": {{name: "FamStatSuccess"}, {name: "FamStatSuccessUnnamedDataItem", check: (*fam).unnamed}, {name: "FamStatSuccessCompareSize", check: (*fam).statTwice},
			{name: "FamStatLookup", check: (*fam).statTwice}, {name: "FamStatGlobalDescriptor", reason: noGlobal}, {name: "FamStatFailure", check: (*fam).statGone}, {name: "FamStatAll", check: (*fam).statTwice}},
	}
}

func (f *fam) wide() { wide(f.t, &f.it.Memory, 128) }

// fresh is a name of its own: cases of a program run side by side.
func (f *fam) fresh(of string) string { return fmt.Sprint(of, "-", f.g.names.Add(1)) }

// region makes a region of a case's own.
func (f *fam) region(size uint64) *pool.Region {
	f.t.Helper()
	r, err := f.p.CreateRegion(f.ctx, pool.Manager, pool.Spec{Name: f.fresh("own"), Size: size})
	must(f.t, err)
	return r
}

// item makes an item of a case's own.
func (f *fam) item(r *pool.Region, s pool.ItemSpec) *pool.Item {
	f.t.Helper()
	it, err := r.CreateItem(f.ctx, s)
	must(f.t, err)
	return it
}

// allocator: a region and an item are made, granted for reading only, found and destroyed.
func (f *fam) allocator() {
	r := f.region(part)
	it := f.item(r, pool.ItemSpec{Name: "first", Size: 1024})
	name := r.Info().Name
	f.must(f.p.Grant(f.ctx, pool.Manager, name, bob, "r"), it.Grant(f.ctx, bob, "r"))
	_, err := f.p.LookupRegion(f.ctx, pool.Manager, name)
	_, itemErr := f.p.LookupItem(f.ctx, pool.Manager, name, "first")
	f.must(err, itemErr, it.Destroy(f.ctx), r.Destroy(f.ctx))
}

// resizeMany: a region is filled with items, made larger, and filled again; none loses its bytes.
func (f *fam) resizeMany() {
	r, err := f.p.CreateRegion(f.ctx, "n1", pool.Spec{Name: f.fresh("grows"), Size: part}) // at one node, all of which is for items
	must(f.t, err)
	var items []*pool.Item
	const size = part / 2
	for round := range 4 {
		for {
			it, err := r.CreateItem(f.ctx, pool.ItemSpec{Size: size})
			if errors.Is(err, pool.ErrMemory) {
				break
			}
			must(f.t, err)
			items = append(items, it)
			f.must(it.Put(f.ctx, random(1000, byte(len(items))), size-1000))
		}
		if want := int(r.Size() / size); len(items) != want {
			f.t.Errorf("%d items in a region of %d bytes, want %d", len(items), r.Size(), want)
		}
		if round < 3 {
			f.must(r.Resize(f.ctx, uint64(r.Size())+part))
		}
	}
	for i, it := range items {
		same(f.t, it, size-1000, random(1000, byte(i+1)))
	}
	f.must(r.Destroy(f.ctx))
}

// resizeOther: one program fills a region, another one makes it larger, and the first goes on.
func (f *fam) resizeOther() {
	r := f.region(part)
	full := f.item(r, pool.ItemSpec{Size: part})
	_, err := r.CreateItem(f.ctx, pool.ItemSpec{Size: part})
	f.want(err, pool.ErrMemory)
	other, err := f.g.client(ann).LookupRegion(f.ctx, pool.Manager, r.Info().Name)
	must(f.t, err)
	f.must(other.Resize(f.ctx, 3*part), r.Refresh(f.ctx))
	next := f.item(r, pool.ItemSpec{Size: part})
	f.must(next.Put(f.ctx, random(100, 3), part-100), full.Put(f.ctx, random(100, 4), 0))
	same(f.t, next, part-100, random(100, 3))
	f.must(other.Destroy(f.ctx))
}

// resizeForbidden: who may read only does not resize.
func (f *fam) resizeForbidden() {
	r := f.region(part)
	name := r.Info().Name
	f.must(f.p.Grant(f.ctx, pool.Manager, name, eve, "r"))
	eves, err := f.g.client(eve).LookupRegion(f.ctx, pool.Manager, name)
	must(f.t, err)
	_, err = eves.CreateItem(f.ctx, pool.ItemSpec{Size: 64})
	f.want(err, cluster.ErrForbidden)
	f.want(eves.Put(f.ctx, []byte{1}, 0), pool.ErrRights)
	f.must(f.p.DestroyRegion(f.ctx, pool.Manager, name))
}

// backupGone: an item that was destroyed has no bytes to back up.
func (f *fam) backupGone() {
	it := f.item(f.r, pool.ItemSpec{Size: 1000})
	f.must(it.Destroy(f.ctx))
	f.want(it.Backup(f.ctx, &bytes.Buffer{}, nil), pool.ErrMoved)
}

// unwritable is a file that takes nothing.
type unwritable struct{}

var errUnwritable = errors.New("no room on the device")

func (unwritable) Write([]byte) (int, error) { return 0, errUnwritable }

func (f *fam) backupUnwritable() { f.want(f.it.Backup(f.ctx, unwritable{}, nil), errUnwritable) }

// restoreNew: a backup comes back into an item that is made for it.
func (f *fam) restoreNew() {
	var file bytes.Buffer
	data := random(famBytes, 12)
	f.must(f.it.Put(f.ctx, data, 0), f.it.Backup(f.ctx, &file, nil))
	it := f.item(f.r, pool.ItemSpec{Name: f.fresh("restored"), Size: famBytes})
	f.must(it.Restore(f.ctx, &file, nil))
	same(f.t, it, 0, data)
	f.must(it.Destroy(f.ctx))
}

func (f *fam) restoreNothing() {
	f.want(f.it.Restore(f.ctx, strings.NewReader(""), nil), pool.ErrBackup)
}

// restoreSmaller: what does not fit is refused, and nothing is written.
func (f *fam) restoreSmaller() {
	var file bytes.Buffer
	f.must(f.it.Put(f.ctx, random(famBytes, 13), 0), f.it.Backup(f.ctx, &file, nil))
	it := f.item(f.r, pool.ItemSpec{Size: famBytes / 2})
	f.want(it.Restore(f.ctx, &file, nil), pool.ErrRange)
	same(f.t, it, 0, make([]byte, famBytes/2))
	f.must(it.Destroy(f.ctx))
}

// reopens: a region that was closed can be opened again, and items be made there.
func (f *fam) reopens() {
	r := f.region(part)
	it := f.item(r, pool.ItemSpec{Name: "kept", Size: 100})
	f.must(it.Put(f.ctx, random(100, 14), 0), r.Close())
	_, err := r.CreateItem(f.ctx, pool.ItemSpec{Size: 100})
	f.want(err, pool.ErrClosed)
	_, err = r.LookupItem(f.ctx, "kept")
	f.want(err, pool.ErrClosed)
	f.want(r.Resize(f.ctx, 2*part), pool.ErrClosed)
	again, err := f.g.client(ann).LookupRegion(f.ctx, pool.Manager, r.Info().Name)
	must(f.t, err)
	kept, err := again.LookupItem(f.ctx, "kept")
	must(f.t, err)
	same(f.t, kept, 0, random(100, 14))
	f.must(again.Destroy(f.ctx))
}

func (f *fam) manyRegions() {
	var made []*pool.Region
	for range 20 {
		made = append(made, f.region(1000))
	}
	for _, r := range made {
		f.must(r.Destroy(f.ctx))
	}
}

// manyItems: many items of one region are apart.
func (f *fam) manyItems() {
	r := f.region(part)
	var items []*pool.Item
	for i := range 50 {
		items = append(items, f.item(r, pool.ItemSpec{Name: fmt.Sprint("item", i), Size: 1024}))
		f.must(items[i].Put(f.ctx, random(1024, byte(i)), 0))
	}
	for i, it := range items {
		same(f.t, it, 0, random(1024, byte(i)))
		f.must(it.Destroy(f.ctx))
	}
	f.must(r.Destroy(f.ctx))
}

// grantsRegion: what one may do with a region follows its grants, one after the other.
func (f *fam) grantsRegion() {
	r := f.region(part)
	name, bobs := r.Info().Name, f.g.client(bob)
	for _, rights := range []string{"r", "rw", "rwa", "w", "none"} {
		f.must(f.p.Grant(f.ctx, pool.Manager, name, bob, rights))
		his, err := bobs.LookupRegion(f.ctx, pool.Manager, name)
		if rights == "none" {
			if err == nil {
				f.t.Error("a region that is granted to nobody was opened")
			}
			continue
		}
		must(f.t, err)
		for want, err := range map[string]error{"r": his.Get(f.ctx, make([]byte, 8), 0), "w": his.Put(f.ctx, make([]byte, 8), 0)} {
			if allowed := strings.Contains(rights, want); allowed && err != nil || !allowed && !errors.Is(err, pool.ErrRights) {
				f.t.Errorf("granted %s, %s: %v", rights, want, err)
			}
		}
	}
	f.must(f.p.DestroyRegion(f.ctx, pool.Manager, name))
}

// copyLengths: copies of all lengths between regions.
func (f *fam) copyLengths() {
	text := []byte("Test message")
	to := f.region(2 * part)
	f.must(f.it.Put(f.ctx, text, 0))
	for n := range len(text) + 1 {
		it := f.item(to, pool.ItemSpec{Size: 128})
		f.must(f.it.CopyTo(f.ctx, 0, it, 0, uint64(n)))
		same(f.t, it, 0, append(append([]byte{}, text[:n]...), make([]byte, 20)...))
	}
	f.must(to.Destroy(f.ctx))
}

// copyFails is a copy that is out of range at one end.
func copyFails(off, to, n uint64) func(f *fam) {
	return func(f *fam) {
		it := f.item(f.r, pool.ItemSpec{Size: famBytes})
		f.must(it.Put(f.ctx, random(famBytes, 15), 0))
		f.want(f.it.CopyTo(f.ctx, off, it, to, n), pool.ErrRange)
		same(f.t, it, 0, random(famBytes, 15))
		f.must(it.Destroy(f.ctx))
	}
}

// interleaved runs a check on an item whose bytes are at both components by turns.
func interleaved(check func(f *fam)) func(f *fam) {
	return func(f *fam) {
		own := *f
		own.it = f.item(f.r, pool.ItemSpec{Size: famBytes, Components: 2, Block: 256})
		check(&own)
		f.must(own.it.Destroy(f.ctx))
	}
}

// longNames: a name has a bound, and what is too long is refused.
func (f *fam) longNames() {
	long := f.fresh("testdatatestdatatestdatatestdatate")
	it := f.item(f.r, pool.ItemSpec{Name: long, Size: 1024})
	f.must(it.Destroy(f.ctx))
	_, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Name: strings.Repeat("n", 1000), Size: 64})
	f.want(err, cluster.ErrName)
}

// sameRegion: a name is one region's.
func (f *fam) sameRegion() {
	r, err := f.p.CreateRegion(f.ctx, "n1", pool.Spec{Name: f.fresh("same"), Size: 4096})
	must(f.t, err)
	for _, size := range []uint64{4096, 1024} {
		_, err := f.p.CreateRegion(f.ctx, "n1", pool.Spec{Name: r.Info().Name, Size: size})
		f.want(err, pool.ErrExists)
	}
	f.must(r.Destroy(f.ctx))
}

func (f *fam) unnamed() {
	it := f.item(f.r, pool.ItemSpec{Size: 1024})
	if i := it.Info(); i.Name != "" || i.Size != 1024 {
		f.t.Errorf("%+v", i)
	}
	f.must(it.Put(f.ctx, random(1024, 16), 0))
	same(f.t, it, 0, random(1024, 16))
	f.must(it.Destroy(f.ctx))
}

// statTwice: two descriptors of one thing say the same.
func (f *fam) statTwice() {
	r := f.region(part)
	it := f.item(r, pool.ItemSpec{Name: "first", Size: 1024})
	again, err := f.p.LookupItem(f.ctx, pool.Manager, r.Info().Name, "first")
	must(f.t, err)
	other, err := f.p.LookupRegion(f.ctx, pool.Manager, r.Info().Name)
	must(f.t, err)
	if a, b := it.Info(), again.Info(); a.Size != b.Size || a.Number != b.Number || a.Generation != b.Generation || r.Size() != other.Size() || r.Info().Region != other.Info().Region {
		f.t.Errorf("%+v and %+v, of regions of %d and %d bytes", a, b, r.Size(), other.Size())
	}
	f.must(r.Destroy(f.ctx))
}

// statGone: once a region and its item are destroyed, nothing finds them, and no other descriptor of them is good for anything.
func (f *fam) statGone() {
	r := f.region(part)
	name := r.Info().Name
	it := f.item(r, pool.ItemSpec{Name: "first", Size: 1024})
	again, err := f.p.LookupItem(f.ctx, pool.Manager, name, "first")
	must(f.t, err)
	other, err := f.p.LookupRegion(f.ctx, pool.Manager, name)
	must(f.t, err)
	f.must(it.Destroy(f.ctx))
	stale(f.t, "another descriptor", again)
	_, err = other.LookupItem(f.ctx, "first")
	f.want(err, pool.ErrNoItem)
	f.must(r.Destroy(f.ctx))
	_, err = f.p.LookupRegion(f.ctx, pool.Manager, name)
	f.want(err, pool.ErrNoRegion)
	f.want(other.Get(f.ctx, make([]byte, 8), 0), pool.ErrMoved)
	if other.Destroy(f.ctx) == nil || f.p.DestroyRegion(f.ctx, pool.Manager, name) == nil {
		f.t.Error("a region was destroyed twice")
	}
}

// readable is a descriptor of a private item of ann's that eve may only read.
func (f *fam) readable() (it *pool.Item, eves *pool.Item) {
	f.t.Helper()
	it = f.item(f.r, pool.ItemSpec{Name: f.fresh("private"), Size: 1024, Private: true})
	f.must(it.Grant(f.ctx, eve, "r"))
	eves, err := f.g.client(eve).LookupItem(f.ctx, pool.Manager, "fam", it.Info().Name)
	must(f.t, err)
	return it, eves
}

// putGetFails: without the right, beyond the end, larger than it is; at once or when it is waited for. No bytes change.
func (f *fam) putGetFails() {
	it, eves := f.readable()
	f.must(it.Put(f.ctx, random(1024, 17), 0))
	b := make([]byte, 13)
	f.want(eves.Put(f.ctx, b, 0), pool.ErrRights)
	op := eves.StartPut(b, 0)
	f.must(eves.Quiet(f.ctx)) // what failed has ended, too, and says so where it is waited for
	f.want(op.Wait(f.ctx), pool.ErrRights)
	f.must(eves.Get(f.ctx, b, 0), eves.StartGet(b, 0).Wait(f.ctx))
	for _, o := range []*pool.Item{it, eves} {
		f.want(o.Get(f.ctx, b, 2048), pool.ErrRange)
		f.want(o.StartGet(b, 2048).Wait(f.ctx), pool.ErrRange)
		f.want(o.Get(f.ctx, make([]byte, 8192), 0), pool.ErrRange)
		f.want(o.StartGet(make([]byte, 8192), 0).Wait(f.ctx), pool.ErrRange)
	}
	f.want(it.Put(f.ctx, b, 2048), pool.ErrRange)
	f.want(it.StartPut(b, 2048).Wait(f.ctx), pool.ErrRange)
	f.must(it.Put(f.ctx, nil, 0), it.Get(f.ctx, nil, 0)) // OpenFAM refuses no bytes at all; here that is nothing to do
	same(f.t, it, 0, random(1024, 17))
	f.must(it.Destroy(f.ctx))
}

func (f *fam) scatterFails() {
	it, eves := f.readable()
	f.must(it.Put(f.ctx, random(1024, 18), 0))
	index, b := []uint64{0, 7, 3, 5, 8}, make([]byte, 20)
	for _, err := range []error{eves.ScatterIndexed(f.ctx, b, 4, index), eves.Scatter(f.ctx, b, 4, 2, 3)} {
		f.want(err, pool.ErrRights)
	}
	f.must(eves.GatherIndexed(f.ctx, b, 4, index), eves.Gather(f.ctx, b, 4, 2, 3))
	f.want(it.GatherIndexed(f.ctx, b, 4, []uint64{0, 1, 2, 3, 256}), pool.ErrRange)
	f.want(it.ScatterIndexed(f.ctx, b, 4, []uint64{0, 1, 2, 3, 256}), pool.ErrRange)
	f.want(it.Scatter(f.ctx, b, 4, 250, 3), pool.ErrRange)
	same(f.t, it, 0, random(1024, 18))
	f.must(it.Destroy(f.ctx))
}
