package pooltest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/pool"
)

// fam is what a case has: a region over two components, and an item in it.
type fam struct {
	t   *testing.T
	g   *rig
	p   *pool.Pool
	r   *pool.Region
	it  *pool.Item
	ctx context.Context
}

const famBytes = 4096

// famCase is one of OpenFAM's regression test programs (test/reg-test), by its name: what of it runs here, or why nothing does.
type famCase struct {
	name   string
	check  func(f *fam)
	reason string
}

// Why some do not run.
const (
	noContexts = "contexts: an order of operations belongs to a connection here, so a program that wants two orders makes two clients"
	noOptions  = "options and initialisation of the OpenFAM library: a client's configuration is client.Config, and client's tests have it"
	noRuntime  = "PMI2, PMIx: processes are started and counted by whatever starts them; a barrier among them is theirs"
	noInternal = "internals of OpenFAM (its allocator, metadata server or memory server): the cases of the same subject below go through our API"
	noBuffers  = "registration of local buffers and descriptors made by hand: any slice is a buffer, and keys cannot be made up (TestItemGenerations, hostilePull)"
)

func famCases() []famCase {
	ints := typed("int32", "int64", "uint32", "uint64")
	all := typed("int32", "int64", "uint32", "uint64", "float32", "float64")
	return []famCase{
		{name: "fam_allocator_reg_test", check: (*fam).allocate},
		{name: "fam_map_reg_test", check: (*fam).maps},
		{name: "fam_resize_reg_test", check: (*fam).resize},
		{name: "fam_arithmatic_atomics_reg_test", check: all},
		{name: "fam_arithmetic_atomics_mt_reg_test", check: many(all)},
		{name: "fam_atomics_reg_test", check: all},
		{name: "fam_backup_restore", check: (*fam).backup},
		{name: "fam_backup_restore_reg_test", check: (*fam).backup},
		{name: "fam_barrier_reg_test", reason: noRuntime},
		{name: "fam_cas_atomics_mt_reg_test", check: many((*fam).compareSwap)},
		{name: "fam_cas_atomics_reg_test", check: (*fam).compareSwap},
		{name: "fam_close_mt", check: many((*fam).closes)},
		{name: "fam_close_simple", check: (*fam).closes},
		{name: "fam_compare_swap_atomics_mt_reg_test", check: many((*fam).compareSwap)},
		{name: "fam_compare_swap_atomics_reg_test", check: (*fam).compareSwap},
		{name: "fam_context_mt_reg_test", reason: noContexts},
		{name: "fam_context_reg_test", reason: noContexts},
		{name: "fam_control_path_reg_test", check: (*fam).names},
		{name: "fam_copy_reg_test", check: (*fam).copies},
		{name: "fam_dataitem_interleave_advanced_test", check: (*fam).interleave},
		{name: "fam_dataitem_interleave_test", check: (*fam).interleave},
		{name: "fam_fence_reg_test", check: (*fam).fence},
		{name: "fam_fetch_arithmatic_atomics_reg_test", check: all},
		{name: "fam_fetch_arithmetic_atomics_mt_reg_test", check: many(all)},
		{name: "fam_fetch_logical_atomics_mt_reg_test", check: many(ints)},
		{name: "fam_fetch_logical_atomics_reg_test", check: ints},
		{name: "fam_fetch_min_max_atomics_mt_reg_test", check: many(all)},
		{name: "fam_fetch_min_max_atomics_reg_test", check: all},
		{name: "fam_initialize_reg_test", reason: noOptions},
		{name: "fam_invalid_offset_reg_test", check: (*fam).offsets},
		{name: "fam_invalidkey_reg_test", check: (*fam).keys},
		{name: "fam_logical_atomic_reg_test", check: ints},
		{name: "fam_min_max_atomics_mt_reg_test", check: many(all)},
		{name: "fam_min_max_atomics_reg_test", check: all},
		{name: "fam_mm_reg_test", check: (*fam).allocate},
		{name: "fam_nonfetch_arithmatic_atomics_reg_test", check: all},
		{name: "fam_nonfetch_arithmetic_atomics_mt_reg_test", check: many(all)},
		{name: "fam_nonfetch_logical_atomics_mt_reg_test", check: many(ints)},
		{name: "fam_nonfetch_logical_atomics_reg_test", check: ints},
		{name: "fam_nonfetch_min_max_atomics_mt_reg_test", check: many(all)},
		{name: "fam_nonfetch_min_max_atomics_reg_test", check: all},
		{name: "fam_noperm_reg_test", check: (*fam).permissions},
		{name: "fam_options_reg_test", reason: noOptions},
		{name: "fam_put_get_mt_reg_test", check: many((*fam).putGet)},
		{name: "fam_put_get_nb_mt_reg_test", check: many((*fam).started)},
		{name: "fam_put_get_negative_test", check: (*fam).offsets},
		{name: "fam_put_get_quiet_nonblock_reg_test", check: (*fam).started},
		{name: "fam_put_get_reg_test", check: (*fam).putGet},
		{name: "fam_put_get_region_ctx_reg_test", reason: noContexts},
		{name: "fam_put_get_user_desc_reg_test", reason: noBuffers},
		{name: "fam_put_getblocking_reg_test", check: (*fam).putGet},
		{name: "fam_region_registration_basic", check: (*fam).names},
		{name: "fam_region_registration_mt", check: many((*fam).names)},
		{name: "fam_region_registration_resize", check: (*fam).resize},
		{name: "fam_register_local_buffer_reg_test", reason: noBuffers},
		{name: "fam_runtime_pmi2_abort_reg_test", reason: noRuntime},
		{name: "fam_runtime_pmi2_reg_test", reason: noRuntime},
		{name: "fam_runtime_pmix_abort_reg_test", reason: noRuntime},
		{name: "fam_runtime_pmix_reg_test", reason: noRuntime},
		{name: "fam_scatter_gather_blocking_mt_reg_test", check: many((*fam).scatter)},
		{name: "fam_scatter_gather_index_blocking_reg_test", check: (*fam).scatter},
		{name: "fam_scatter_gather_index_nonblocking_reg_test", check: many((*fam).scatter)},
		{name: "fam_scatter_gather_index_user_desc_reg_test", reason: noBuffers},
		{name: "fam_scatter_gather_nonblocking_mt_reg_test", check: many((*fam).scatter)},
		{name: "fam_scatter_gather_stride_blocking_reg_test", check: (*fam).scatter},
		{name: "fam_scatter_gather_stride_nonblocking_reg_test", check: many((*fam).scatter)},
		{name: "fam_scatter_gather_stride_user_desc_reg_test", reason: noBuffers},
		{name: "fam_shm_tests", check: (*fam).putGet},
		{name: "fam_size_reg_test", check: (*fam).stat},
		{name: "fam_stat_reg_test", check: (*fam).stat},
		{name: "fam_stat_reg_test_shm", check: (*fam).stat},
		{name: "fam_swap_atomics_mt_reg_test", check: many(all)},
		{name: "fam_swap_atomics_reg_test", check: all},
		{name: "fam_swap_reg_test", check: all},
		{name: "fam_ops_reg_test", reason: noInternal},
		{name: "fam_metadata_reg_test", reason: noInternal},
	}
}

// TestOpenFAM runs what OpenFAM's regression tests are about, by the names of their programs and cases.
func TestOpenFAM(t *testing.T) {
	overAll(t, func(t *testing.T, f factory) {
		g := newRig(t, f, "n1", "n2")
		p := g.client(ann)
		r, err := p.CreateRegion(within(t), pool.Manager, pool.Spec{Name: "fam", Size: 64 * part})
		must(t, err)
		run := func(t *testing.T, name string, check func(f *fam)) {
			t.Run(name, func(t *testing.T) {
				ctx := within(t)
				it, err := r.CreateItem(ctx, pool.ItemSpec{Size: famBytes})
				must(t, err)
				check(&fam{t: t, g: g, p: p, r: r, it: it, ctx: ctx})
				must(t, it.Destroy(ctx))
			})
		}
		tests := famTests()
		for _, c := range famCases() {
			t.Run(c.name, func(t *testing.T) {
				for _, one := range tests[c.name] {
					check := one.check
					if check == nil {
						check = c.check
					}
					if one.reason == "" {
						run(t, one.name, check)
					}
				}
			})
		}
	})
}

// famPrograms is how many programs OpenFAM's test/reg-test has, and famNamed how many cases are here by their names. Its cases were once counted as 325; the sources
// of the programs that do not run, read again, have 28, with which 312 are named. Where the other 13 were counted is not known.
const famPrograms, famAll, famNamed = 76, 325, 312

// TestOpenFAMList: each program and each case has a check or a reason, once, and the cases of each program have their names.
func TestOpenFAMList(t *testing.T) {
	tests, seen, named := famTests(), map[string]bool{}, 0
	for _, c := range famCases() {
		if seen[c.name] || (c.check == nil) == (c.reason == "") {
			t.Errorf("%s stands twice, or with neither a check nor a reason, or both", c.name)
		}
		seen[c.name] = true
		if len(tests[c.name]) == 0 {
			t.Errorf("the cases of %s have no names", c.name)
		}
		for _, one := range tests[c.name] {
			if full := c.name + "/" + one.name; seen[full] || one.reason == "" && one.check == nil && c.check == nil || one.reason != "" && one.check != nil {
				t.Errorf("%s stands twice, or with neither a check nor a reason, or both", full)
			} else {
				seen[full] = true
			}
			named++
		}
		delete(tests, c.name)
	}
	for name := range tests {
		t.Errorf("cases of %s, which is no program", name)
	}
	if programs := len(seen) - named; programs != famPrograms {
		t.Errorf("%d programs, and OpenFAM has %d", programs, famPrograms)
	}
	if named != famNamed || named > famAll {
		t.Errorf("%d cases of %d by name, want %d", named, famAll, famNamed)
	}
}

// typed is every atomic of some types.
func typed(names ...string) func(f *fam) {
	return func(f *fam) {
		for _, name := range names {
			atomicTypes()[name](f.t, &f.it.Memory, 64)
		}
	}
}

// many has several goroutines do the same, each with an item of its own.
func many(check func(f *fam)) func(f *fam) {
	return func(f *fam) {
		var work sync.WaitGroup
		for range 3 {
			work.Go(func() {
				it, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Size: famBytes})
				if err != nil {
					f.t.Error(err)
					return
				}
				own := *f
				own.it = it
				check(&own)
				f.must(it.Destroy(f.ctx))
			})
		}
		work.Wait()
	}
}

func (f *fam) must(errs ...error) {
	f.t.Helper()
	if err := errors.Join(errs...); err != nil {
		f.t.Error(err)
	}
}

func (f *fam) want(err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Errorf("%v, want %v", err, want)
	}
}

func (f *fam) putGet() {
	data := random(famBytes, 1)
	f.must(f.it.Put(f.ctx, data, 0))
	same(f.t, f.it, 0, data)
	f.must(f.it.Put(f.ctx, data[:100], famBytes-100))
	same(f.t, f.it, famBytes-100, data[:100])
	same(f.t, f.it, 0, data[:famBytes-100])
}

func (f *fam) started() {
	data, got := random(famBytes, 2), make([]byte, famBytes)
	var ops []pool.Op
	for off := 0; off < famBytes; off += 512 {
		ops = append(ops, f.it.StartPut(data[off:off+512], uint64(off)))
	}
	f.must(f.it.Quiet(f.ctx))
	for off := 0; off < famBytes; off += 512 {
		ops = append(ops, f.it.StartGet(got[off:off+512], uint64(off)))
	}
	for _, o := range ops {
		f.must(o.Wait(f.ctx))
	}
	if !bytes.Equal(got, data) {
		f.t.Error("other bytes")
	}
}

func (f *fam) scatter() {
	for _, size := range []int{4, 8, 100} {
		data, got := random(size*10, byte(size)), make([]byte, size*10)
		f.must(f.it.Scatter(f.ctx, data, size, 2, 3), f.it.Gather(f.ctx, got, size, 2, 3))
		if !bytes.Equal(got, data) {
			f.t.Errorf("elements of %d bytes by strides are others", size)
		}
		index := []uint64{0, 7, 3, 9, 5, 30, 21, 11, 13, 15}
		f.must(f.it.ScatterIndexed(f.ctx, data, size, index), f.it.GatherIndexed(f.ctx, got, size, index))
		if !bytes.Equal(got, data) {
			f.t.Errorf("elements of %d bytes by index are others", size)
		}
		same(f.t, f.it, 7*uint64(size), data[size:2*size])
	}
	f.want(f.it.Gather(f.ctx, make([]byte, 80), 8, famBytes/8-9, 1), pool.ErrRange)
}

func (f *fam) fence() {
	for i := range byte(20) {
		a := f.it.StartPut(bytes.Repeat([]byte{i}, 64), 0)
		f.it.Fence()
		b := f.it.StartPut(bytes.Repeat([]byte{i + 1}, 64), 0)
		f.must(f.it.Quiet(f.ctx), a.Wait(f.ctx), b.Wait(f.ctx))
		same(f.t, f.it, 0, bytes.Repeat([]byte{i + 1}, 64))
	}
}

func (f *fam) compareSwap() {
	typed("int32", "int64", "uint32", "uint64")(f)
	wide(f.t, &f.it.Memory, 128)
}

func (f *fam) offsets() {
	b := make([]byte, 8)
	for _, off := range []uint64{famBytes - 7, famBytes, 1 << 40, ^uint64(0) - 3} {
		_, err := pool.AtomicsOf[uint64](&f.it.Memory).Add(f.ctx, off&^7|(famBytes&^7), 1)
		for _, err := range []error{f.it.Get(f.ctx, b, off), f.it.Put(f.ctx, b, off), f.it.StartGet(b, off).Wait(f.ctx), f.it.Discard(f.ctx, off, 8),
			f.it.CopyTo(f.ctx, off, f.r, 0, 8), f.r.CopyTo(f.ctx, 0, f.it, off, 8), f.it.GatherIndexed(f.ctx, b, 8, []uint64{max(off/8, famBytes/8)}), err} {
			f.want(err, pool.ErrRange)
		}
	}
}

// keys: a descriptor whose item is gone, or is another one by now.
func (f *fam) keys() {
	it, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Name: "keys", Size: 200})
	f.must(err, f.r.DestroyItem(f.ctx, "keys"))
	stale(f.t, "destroyed", it)
	next, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Name: "keys", Size: 200})
	f.must(err)
	stale(f.t, "made again", it)
	f.must(next.Destroy(f.ctx))
}

func (f *fam) permissions() {
	it, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Name: "mine", Size: 64, Private: true})
	f.must(err)
	bobs := f.g.client(bob)
	_, err = bobs.LookupItem(f.ctx, pool.Manager, "fam", "mine")
	f.want(err, pool.ErrNoItem)
	b := make([]byte, 8)
	for rights, want := range map[string][3]error{"r": {nil, pool.ErrRights, pool.ErrRights}, "w": {pool.ErrRights, nil, pool.ErrRights}, "rw": {nil, nil, pool.ErrRights}, "all": {}} {
		f.must(it.Grant(f.ctx, bob, rights))
		his, err := bobs.LookupItem(f.ctx, pool.Manager, "fam", "mine")
		f.must(err)
		f.want(his.Get(f.ctx, b, 0), want[0])
		f.want(his.Put(f.ctx, b, 0), want[1])
		_, err = pool.AtomicsOf[int64](&his.Memory).Add(f.ctx, 0, 1)
		f.want(err, want[2])
		f.want(his.Destroy(f.ctx), cluster.ErrForbidden)
	}
	f.must(it.Destroy(f.ctx))
}

func (f *fam) allocate() {
	for _, size := range []uint64{1, 63, 64, 1000, part} {
		it, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Name: "alloc", Size: size})
		f.must(err)
		_, err = f.r.CreateItem(f.ctx, pool.ItemSpec{Name: "alloc", Size: size})
		f.want(err, pool.ErrExists)
		same(f.t, it, 0, make([]byte, size))
		f.must(it.Put(f.ctx, random(int(size), 9), 0), f.r.DestroyItem(f.ctx, "alloc"))
		f.want(f.r.DestroyItem(f.ctx, "alloc"), pool.ErrNoItem)
	}
	_, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Size: 1 << 40})
	f.want(err, pool.ErrMemory)
}

func (f *fam) resize() {
	r := f.region(part)
	f.must(r.Put(f.ctx, []byte("stays"), part-5), r.Resize(f.ctx, 3*part), r.Put(f.ctx, []byte("new"), 2*part))
	same(f.t, r, part-5, []byte("stays"))
	f.must(r.Resize(f.ctx, part))
	f.want(r.Get(f.ctx, make([]byte, 3), 2*part), pool.ErrRange)
	it, err := r.CreateItem(f.ctx, pool.ItemSpec{Size: 100})
	f.must(err, it.Resize(f.ctx, 1000), it.Put(f.ctx, []byte("x"), 999), r.Destroy(f.ctx))
}

func (f *fam) maps() {
	v, err := f.it.Map(0, famBytes)
	if errors.Is(err, pool.ErrNotMapped) {
		return // and says so
	}
	f.must(err, v.Access(func(mem []byte) { copy(mem, random(famBytes, 7)) }))
	same(f.t, f.it, 0, random(famBytes, 7))
}

func (f *fam) backup() {
	var file bytes.Buffer
	data := random(famBytes, 8)
	f.must(f.it.Put(f.ctx, data, 0), f.it.Backup(f.ctx, &file, nil), f.it.Discard(f.ctx, 0, famBytes), f.it.Restore(f.ctx, &file, nil))
	same(f.t, f.it, 0, data)
	f.want(f.it.Restore(f.ctx, bytes.NewReader(data), nil), pool.ErrBackup)
}

func (f *fam) copies() {
	data := random(famBytes, 10)
	other, err := f.r.CreateItem(f.ctx, pool.ItemSpec{Size: famBytes, Components: 2, Block: 256})
	f.must(err, f.it.Put(f.ctx, data, 0), f.it.CopyTo(f.ctx, 0, other, 0, famBytes))
	same(f.t, other, 0, data)
	f.must(other.CopyTo(f.ctx, 100, f.it, 0, 1000))
	same(f.t, f.it, 0, data[100:1100])
	f.want(f.it.CopyTo(f.ctx, 0, other, famBytes-10, 20), pool.ErrRange)
	f.must(other.Destroy(f.ctx))
}

func (f *fam) interleave() {
	for _, s := range []pool.ItemSpec{{Components: 2, Block: 64}, {Components: 2, Block: 4096}, {Components: 2}} {
		s.Name, s.Size = "inter", 20_000
		it, err := f.r.CreateItem(f.ctx, s)
		must(f.t, err)
		f.must(it.Put(f.ctx, random(20_000, 11), 0))
		again, err := f.g.client(ann).LookupItem(f.ctx, pool.Manager, "fam", "inter")
		must(f.t, err)
		checkItem(f.t, again, s, random(20_000, 11))
		f.must(again.Destroy(f.ctx))
		stale(f.t, "interleaved and destroyed", it)
	}
}

func (f *fam) stat() {
	i := f.it.Info()
	if i.Size != famBytes || f.it.Size() != famBytes || i.Owner != ann || i.Rights != "rwa" || f.r.Info().Name != "fam" || f.r.Size() != 64*part {
		f.t.Errorf("%+v of %+v", i, f.r.Info())
	}
	list, err := f.r.ListItems(f.ctx)
	if err != nil || len(list) == 0 {
		f.t.Errorf("%+v, %v", list, err)
	}
}

func (f *fam) closes() {
	r, err := f.g.client(ann).LookupRegion(f.ctx, pool.Manager, "fam")
	must(f.t, err)
	f.must(r.Close(), r.Close())
	f.want(r.Get(f.ctx, make([]byte, 1), 0), pool.ErrClosed)
	f.want(r.Discard(f.ctx, 0, 1), pool.ErrClosed)
	f.putGet() // others go on
}

func (f *fam) names() {
	name := f.fresh("named")
	r, err := f.p.CreateRegion(f.ctx, pool.Manager, pool.Spec{Name: name, Size: part})
	must(f.t, err)
	again, err := f.p.LookupRegion(f.ctx, pool.Manager, name)
	f.must(err, r.Put(f.ctx, []byte("found"), 9))
	same(f.t, again, 9, []byte("found"))
	f.must(f.p.DestroyRegion(f.ctx, pool.Manager, name))
	_, err = f.p.LookupRegion(f.ctx, pool.Manager, name)
	f.want(err, pool.ErrNoRegion)
	f.want(again.Get(f.ctx, make([]byte, 1), 0), pool.ErrMoved)
}
