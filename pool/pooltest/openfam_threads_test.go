package pooltest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/pool"
)

// famType is a type by both spellings that OpenFAM's cases have of it, and by ours.
type famType struct{ upper, lower, here string }

// famTypes are all types, integers first; famUnsigned those that have logical operations in OpenFAM.
var (
	famTypes = []famType{{"Int32", "Int32", "int32"}, {"UInt32", "Uint32", "uint32"}, {"Int64", "Int64", "int64"}, {"UInt64", "Uint64", "uint64"},
		{"Float", "Float", "float32"}, {"Double", "Double", "float64"}}
	famIntegers = famTypes[:4]
	famUnsigned = []famType{famTypes[1], famTypes[3]}
)

// ofTypes are cases that differ by their type only: in their names, %[1]s stands for UInt32, %[2]s for Uint32. how, if it is not nil, has them done in
// another way.
func ofTypes(types []famType, how func(func(f *fam)) func(f *fam), formats ...string) (out []famTest) {
	for _, format := range formats {
		for _, t := range types {
			c := famTest{name: fmt.Sprintf(format+"%[3]s", t.upper, t.lower, ""), check: typed(t.here)}
			if how != nil {
				c.check = how(c.check)
			}
			out = append(out, c)
		}
	}
	return out
}

// famAtomics are the cases of the programs about atomics, and of those about threads and interleaved items.
func famAtomics() map[string][]famTest {
	compare := []famTest{{name: "CompareSwapInt128Success", check: many((*fam).wide)}, {name: "CompareSwapNegativeCaseSuccess"},
		{name: "CompareSwapNegativeCaseInt128Success", check: many((*fam).wide)}}
	cas := famTest{name: "CASInt128", check: (*fam).wide}
	stale := func(name string) famTest { return famTest{name: name, check: (*fam).keys} }
	cases := map[string][]famTest{
		"fam_arithmatic_atomics_reg_test":    ofTypes(famTypes, nil, "AddSub%[1]sNonBlock", "AddSub%[1]sBlocking"),
		"fam_arithmetic_atomics_mt_reg_test": ofTypes(famTypes, many, "AddSub%[1]sNonBlock", "AddSub%[1]sBlocking"),
		"fam_atomics_reg_test": {{name: "AddSubInt32NonBlock", check: counted(2, 10, 30)}, {name: "AddInt32NonBlock", check: counted(10, 100, 0)},
			{name: "SubInt32NonBlock", check: counted(10, 0, 100)}, stale("FamFetchIntInvalidDesc")},
		"fam_cas_atomics_reg_test":                    append(ofTypes(famIntegers, nil, "CAS%[1]s"), cas),
		"fam_cas_atomics_mt_reg_test":                 append(ofTypes(famIntegers, many, "CAS%[1]s"), famTest{name: "CASInt128", check: many((*fam).wide)}),
		"fam_compare_swap_atomics_mt_reg_test":        append(ofTypes(famIntegers, many, "CompareSwap%[2]sSuccess"), compare...),
		"fam_fetch_arithmatic_atomics_reg_test":       append(ofTypes(famTypes, nil, "ArithAtomic%[2]sSuccess"), stale("ArithAtomicInvalidDescriptor")),
		"fam_fetch_arithmetic_atomics_mt_reg_test":    ofTypes(famTypes, many, "ArithAtomic%[2]sSuccess"),
		"fam_fetch_logical_atomics_reg_test":          ofTypes(famUnsigned, nil, "LogicalAtomic%[2]sSuccess"),
		"fam_fetch_logical_atomics_mt_reg_test":       ofTypes(famUnsigned, many, "LogicalAtomic%[2]sSuccess"),
		"fam_fetch_min_max_atomics_reg_test":          ofTypes(famTypes, nil, "MinMaxAtomic%[2]sSuccess"),
		"fam_fetch_min_max_atomics_mt_reg_test":       ofTypes(famTypes, many, "MinMaxAtomic%[2]sSuccess"),
		"fam_min_max_atomics_mt_reg_test":             ofTypes(famTypes, many, "MinMax%[1]sNonBlock", "MinMax%[1]sBlock"),
		"fam_nonfetch_arithmatic_atomics_reg_test":    append(ofTypes(famTypes, nil, "NonfetchArithAtomic%[2]sSuccess"), stale("ArithAtomicInvalidDescriptor")),
		"fam_nonfetch_arithmetic_atomics_mt_reg_test": ofTypes(famTypes, many, "NonfetchArithAtomic%[2]sSuccess"),
		"fam_nonfetch_logical_atomics_mt_reg_test":    ofTypes(famUnsigned, many, "NonfetchLogicalAtomic%[2]sSuccess"),
		"fam_nonfetch_min_max_atomics_reg_test":       ofTypes(famTypes, nil, "NonfetchMinMaxAtomic%[2]sSuccess"),
		"fam_nonfetch_min_max_atomics_mt_reg_test":    ofTypes(famTypes, many, "NonfetchMinMaxAtomic%[2]sSuccess"),
		"fam_swap_atomics_reg_test":                   ofTypes(famTypes, nil, "Swap%[1]s"),
		"fam_swap_atomics_mt_reg_test":                ofTypes(famTypes, many, "Swap%[1]s"),
		"fam_logical_atomic_reg_test": append(ofTypes(famUnsigned, nil, "FetchLogical%[1]s", "NonfetchLogical%[1]s"), famTest{name: "NonfetchLogicalNegativePerm", check: (*fam).atomicsForbidden},
			famTest{name: "FetchLogicalNegativePerm", check: (*fam).atomicsForbidden}, famTest{name: "NonfetchLogicalNegativeInvalidOffset", check: (*fam).atomicsBeyond},
			famTest{name: "FetchLogicalNegativeInvalidOffset", check: (*fam).atomicsBeyond}, stale("FetchLogicalNegativeInvalidDescriptor")),
		"fam_min_max_atomics_reg_test": append(ofTypes(famTypes, nil, "MinMax%[1]sNonBlock", "MinMax%[1]sBlock"), famTest{name: "MinMaxNegativeBlockPerm", check: (*fam).atomicsForbidden},
			famTest{name: "MinMaxNegativeNonblockPerm", check: (*fam).atomicsForbidden}, famTest{name: "MinMaxNegativeNonblockInvalidOffset", check: (*fam).atomicsBeyond},
			stale("MinMaxNegativeInvalidDescriptor")),
		"fam_dataitem_interleave_advanced_test": {{name: "PutGetInvalidOffset", check: (*fam).beyondBlocks}, {name: "PutGetNBInvalidOffset", check: (*fam).beyondBlocks},
			{name: "ScatterGatherStrideBlockInvalidOffset", check: (*fam).beyondBlocks}, {name: "ScatterGatherStrideNonblockInvalidOffset", check: (*fam).beyondBlocks},
			{name: "ScatterGatherIndexBlockInvalidOffset", check: (*fam).beyondBlocks}, {name: "ScatterGatherIndexNonblockInvalidOffset", check: (*fam).beyondBlocks},
			{name: "ScatterGatherStrideElementSpanServer", check: (*fam).spans}, {name: "ScatterGatherIndexElementSpanServer", check: (*fam).spans}, {name: "AtomicSpanServer", check: (*fam).atomicSpans}},
		"fam_region_registration_mt":                     {{name: "MultiThread"}},
		"fam_shm_tests":                                  {{name: "PutGetSuccess"}, {name: "ChangePermSuccess", check: (*fam).grantsRegion}, {name: "UserDescriptorSuccess", reason: noGlobal}},
		"fam_scatter_gather_index_nonblocking_reg_test":  {{name: "ScatterGatherIndexNonblockSuccess"}},
		"fam_scatter_gather_stride_nonblocking_reg_test": {{name: "ScatterGatherStrideNonblockSuccess"}},
		"fam_options_reg_test":                           {{name: "GetDefaultOptionList", reason: noOptions}, {name: "GetDefaultOptionValue", reason: noOptions}, {name: "QueryWithInavlidOption", reason: noOptions}},
		"fam_runtime_pmi2_reg_test":                      {{name: "PMI2Success", reason: noRuntime}},
	}
	for program, prefix := range map[string]string{"fam_put_get_mt_reg_test": "Blocking", "fam_put_get_nb_mt_reg_test": "Nonblocking"} {
		nb := prefix == "Nonblocking"
		cases[program] = []famTest{{name: prefix + "PutGetMTSameRegionDataItem", check: together(nb, 1, false)}, {name: prefix + "PutGetMTMultipleRegionDataItem", check: together(nb, 3, false)},
			{name: prefix + "PutGetMTSameRegionDataItemPutGet", check: together(nb, 1, false)}, {name: prefix + "PutGetMTSameRegionPerThreadDataItemPutGet", check: together(nb, 1, true)}}
	}
	return cases
}

// parallel calls fn of several goroutines at once.
func parallel(n int, fn func(i int)) {
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() { fn(i) })
	}
	work.Wait()
}

// counted has each of n goroutines add so much to a word, or take so much away, by turns where both are asked for; none is lost.
func counted(n, plus, minus int32) func(f *fam) {
	return func(f *fam) {
		const steps = 5
		word := pool.AtomicsOf[int32](&f.it.Memory)
		f.must(word.Set(f.ctx, 512, 10_000))
		want := int32(10_000)
		for i := range n {
			switch {
			case minus == 0 || plus != 0 && i%2 == 1:
				want += plus
			default:
				want -= minus
			}
		}
		parallel(int(n), func(i int) {
			for range steps {
				var err error
				if minus == 0 || plus != 0 && i%2 == 1 {
					_, err = word.Add(f.ctx, 512, plus/steps)
				} else {
					_, err = word.Subtract(f.ctx, 512, minus/steps)
				}
				f.must(err)
			}
		})
		if got, err := word.Fetch(f.ctx, 512); err != nil || got != want {
			f.t.Errorf("%d (%v), want %d", got, err, want)
		}
	}
}

// everyAtomic is the error of each operation on words of two types.
func everyAtomic(f *fam, it *pool.Item, off uint64) (errs []error) {
	small, large, real := pool.AtomicsOf[uint32](&it.Memory), pool.AtomicsOf[int64](&it.Memory), pool.AtomicsOf[float64](&it.Memory)
	add := func(_ any, err error) { errs = append(errs, err) }
	add(pool.And(f.ctx, &it.Memory, off, uint32(1)))
	add(pool.Or(f.ctx, &it.Memory, off, uint64(1)))
	add(pool.Xor(f.ctx, &it.Memory, off, uint32(1)))
	add(small.Min(f.ctx, off, 1))
	add(large.Max(f.ctx, off, 1))
	add(real.Min(f.ctx, off, 1))
	add(real.Add(f.ctx, off, 1))
	add(small.Subtract(f.ctx, off, 1))
	add(large.Swap(f.ctx, off, 1))
	add(large.CompareSwap(f.ctx, off, 0, 1))
	return append(errs, small.Set(f.ctx, off, 1), real.Set(f.ctx, off, 1))
}

// atomicsForbidden: who may read only changes no word.
func (f *fam) atomicsForbidden() {
	it, eves := f.readable()
	f.must(it.Put(f.ctx, random(1024, 19), 0))
	for i, err := range everyAtomic(f, eves, 512) {
		if err == nil {
			f.t.Errorf("atomic %d by a reader", i)
		}
		f.want(err, pool.ErrRights)
	}
	same(f.t, it, 0, random(1024, 19))
	f.must(it.Destroy(f.ctx))
}

// atomicsBeyond: there are no words behind an item's end, and none that lies over it.
func (f *fam) atomicsBeyond() {
	f.must(f.it.Put(f.ctx, random(famBytes, 20), 0))
	for _, off := range []uint64{famBytes, 2 * famBytes, 1 << 40, ^uint64(0) &^ 7} {
		for _, err := range everyAtomic(f, f.it, off) {
			f.want(err, pool.ErrRange)
		}
	}
	same(f.t, f.it, 0, random(famBytes, 20))
}

// blocks makes an item in blocks at both components.
func (f *fam) blocks(size, block uint64) *pool.Item {
	return f.item(f.r, pool.ItemSpec{Size: size, Components: 2, Block: block})
}

// beyondBlocks: what reaches behind the end of an item in blocks is refused as a whole, at once and where it is waited for.
func (f *fam) beyondBlocks() {
	it := f.blocks(8*256, 256)
	f.must(it.Put(f.ctx, random(8*256, 21), 0))
	b := make([]byte, 6*256)
	for _, err := range []error{it.Put(f.ctx, b, 7*256), it.Get(f.ctx, b, 7*256), it.StartPut(b, 7*256).Wait(f.ctx), it.StartGet(b, 7*256).Wait(f.ctx),
		it.Scatter(f.ctx, b[:20], 4, 7*64, 64), it.Gather(f.ctx, b[:20], 4, 7*64, 64),
		it.ScatterIndexed(f.ctx, b[:12], 4, []uint64{0, 64, 512}), it.GatherIndexed(f.ctx, b[:12], 4, []uint64{0, 64, 512})} {
		f.want(err, pool.ErrRange)
	}
	same(f.t, it, 0, random(8*256, 21))
	f.must(it.Destroy(f.ctx))
}

// spans: elements that lie over the border of two components are whole.
func (f *fam) spans() {
	it := f.blocks(64*64, 64)
	const size = 100
	data, got := random(10*size, 22), make([]byte, 10*size)
	f.must(it.Scatter(f.ctx, data, size, 1, 3), it.Gather(f.ctx, got, size, 1, 3))
	if !bytes.Equal(got, data) {
		f.t.Error("elements by strides are others")
	}
	index := []uint64{0, 9, 3, 5, 20, 17, 31, 12, 7, 39}
	f.must(it.ScatterIndexed(f.ctx, data, size, index), it.GatherIndexed(f.ctx, got, size, index))
	if !bytes.Equal(got, data) {
		f.t.Error("elements by index are others")
	}
	f.must(it.Destroy(f.ctx))
}

// atomicSpans: no word lies over the border of two components.
func (f *fam) atomicSpans() {
	it := f.blocks(16*64, 64)
	f.must(it.Put(f.ctx, random(16*64, 23), 0))
	for _, err := range everyAtomic(f, it, 63) {
		f.want(err, fabric.ErrAlign)
	}
	same(f.t, it, 0, random(16*64, 23))
	f.must(it.Destroy(f.ctx))
}

// together has goroutines put and then others get, each at an offset of its own of one item in each of so many regions, or in an item of its own.
func together(started bool, regions int, own bool) func(f *fam) {
	return func(f *fam) {
		const threads, size = 5, 64
		var made []*pool.Region
		items := make([][]*pool.Item, regions)
		for i := range items {
			r := f.region(part)
			made = append(made, r)
			for range threads {
				if own || len(items[i]) == 0 {
					items[i] = append(items[i], f.item(r, pool.ItemSpec{Size: threads * size}))
				} else {
					items[i] = append(items[i], items[i][0])
				}
			}
		}
		each := func(do func(it *pool.Item, want []byte, off uint64)) {
			parallel(threads, func(i int) {
				for j := range items {
					do(items[j][i], random(size, byte(10*j+i)), uint64(i)*size)
				}
			})
		}
		each(func(it *pool.Item, want []byte, off uint64) {
			if started {
				f.must(it.StartPut(want, off).Wait(f.ctx))
			} else {
				f.must(it.Put(f.ctx, want, off))
			}
		})
		each(func(it *pool.Item, want []byte, off uint64) {
			got, err := make([]byte, size), error(nil)
			if started {
				err = it.StartGet(got, off).Wait(f.ctx)
			} else {
				err = it.Get(f.ctx, got, off)
			}
			if err != nil || !bytes.Equal(got, want) {
				f.t.Errorf("other bytes at %d: %v", off, err)
			}
		})
		for _, r := range made {
			f.must(r.Destroy(f.ctx))
		}
	}
}
