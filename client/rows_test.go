package client

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-fabric/wherry/dataset/structs"
)

type sale struct {
	User    int64 `wherry:"user id"`
	Product string
	Total   float64 `wherry:"total"`
	When    time.Time
	Took    time.Duration `wherry:"took,duration[ms]"`
	Paid    *bool         `wherry:"paid"`
	Note    *string
	Code    [2]byte
	Raw     []byte
	Count   uint8 `wherry:"n,u16"`
	Host    netip.Addr
	ID      string   `wherry:"id,uuid"`
	Bytes   [16]byte `wherry:"b,uuid"`
	Price   string   `wherry:"price,decimal128(10, 2)"`
	private int
	Skipped chan int `wherry:"-"`
}

func orders(n int) []sale {
	out := make([]sale, n)
	for i := range out {
		yes, note := i%2 == 0, strings.Repeat("n", i%5)
		out[i] = sale{User: int64(i%10) - 3, Product: []string{"tea", "coffee"}[i%2], Total: float64(i) / 4, When: time.Date(2026, 3, 1, 12, 0, i, 5000, time.UTC),
			Took: time.Duration(i) * time.Millisecond, Code: [2]byte{byte(i), 1}, Raw: []byte{byte(i)}, Count: uint8(i),
			Host: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), ID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i), Bytes: [16]byte{1, 15: byte(i)}, Price: fmt.Sprintf("%d.%02d", i-9, i%100)}
		if i%3 != 0 {
			out[i].Paid, out[i].Note = &yes, &note
		}
	}
	return out
}

// sales are the rows that a question finds.
func sales(t *testing.T, c *Client, q Question) (out []sale) {
	t.Helper()
	for o, err := range All[sale](t.Context(), c, q) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// Structs become columns on two nodes, and come back as they were: all of them, and those that a question finds.
func TestStructs(t *testing.T) {
	overEach(t, func(t *testing.T, scheme string) {
		b := newBench(t, scheme, "n1", "n2")
		c := b.connect(t, tokenOwner)
		want := orders(500)
		report, err := LoadRows(t.Context(), c, "orders", slices.Values(want))
		if err != nil {
			t.Fatal(err)
		}
		if report.Rows != 500 || report.Table.Shards[0].Rows != 250 || report.Table.Columns.List() !=
			"user id:i64,Product:utf8,total:f64,When:timestamp[us, UTC],took:duration[ms],paid:bool,Note:utf8,Code:bytes2,Raw:binary,n:u16,Host:ip,id:uuid,b:uuid,price:decimal128(10, 2)" {
			t.Errorf("%+v", report.Table)
		}
		if _, err := LoadRowsAs(t.Context(), c, LoadSpec{Name: "orders", Append: true}, slices.Values(want[:2])); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadRowsAs(t.Context(), c, LoadSpec{Name: "orders", Replace: true}, slices.Values(want)); err != nil {
			t.Fatal(err)
		}
		same := cmp.Options{cmp.AllowUnexported(sale{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
		got := sales(t, c, From("orders"))
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Error(diff)
		}
		got = sales(t, c, From("orders").Where("total > 9").Where(`Product == "tea" && !isnull(paid)`).Order("-total").Limit(3))
		if len(got) != 3 || got[0].Total != 124 || got[2].Total != 122.5 {
			t.Errorf("%+v", got)
		}
		got = sales(t, c, From("orders").Where(`Host > "10.0.0.255" && Host != "10.0.1.2" && id < "00000000-0000-4000-8000-000000000105"`).Order("-Host"))
		if diff := cmp.Diff([]sale{want[260], want[259], want[257], want[256]}, got, same); diff != "" {
			t.Error(diff)
		}
		rows, err := c.Ask(t.Context(), From("orders").Group("Product").Agg("n=count()", "most=max(total)").Order("Product"))
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var sum struct {
			Product string
			N       int     `wherry:"n"`
			Most    float32 `wherry:"most"`
		}
		if !rows.Next() || rows.Scan(&sum) != nil || sum.Product != "coffee" || sum.N != 250 || sum.Most != 124.75 || !rows.Next() || rows.Next() || rows.Err() != nil {
			t.Errorf("%+v, %v", sum, rows.Err())
		}
		all, err := c.Ask(t.Context(), From("orders"))
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		n := int64(0)
		for rec, err := range all.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			n += rec.NumRows()
		}
		if n != 500 {
			t.Errorf("%d rows in batches", n)
		}
	})
}

func TestStructErrors(t *testing.T) {
	b := newBench(t, "shm", "n1")
	c := b.connect(t, tokenOwner)
	if _, err := LoadRows(t.Context(), c, "orders", slices.Values(orders(10))); err != nil {
		t.Fatal(err)
	}
	load := func(err error) error { return err }
	_, nested := LoadRows(t.Context(), c, "x", slices.Values([]struct{ A map[string]int }{{}}))
	_, typed := LoadRows(t.Context(), c, "x", slices.Values([]struct {
		A int `wherry:"a,utf8"`
	}{{}}))
	_, large := LoadRows(t.Context(), c, "x", slices.Values([]struct {
		A int `wherry:"a,u8"`
	}{{1}, {256}}))
	_, clock := LoadRows(t.Context(), c, "x", slices.Values([]struct {
		A int `wherry:"a,time32[s]"`
	}{{86399}, {86400}}))
	_, price := LoadRows(t.Context(), c, "x", slices.Values([]struct {
		A string `wherry:"a,decimal128(4, 2)"`
	}{{"1.5"}, {"1.125"}}))
	_, text := LoadRows(t.Context(), c, "x", slices.Values([]struct{ A string }{{"\xff"}}))
	_, twice := LoadRows(t.Context(), c, "x", slices.Values([]struct {
		A int `wherry:"a"`
		B int `wherry:"a"`
	}{{}}))
	_, other := LoadRowsAs(t.Context(), c, LoadSpec{Name: "orders", Append: true}, slices.Values([]struct{ A int }{{1}}))
	first := func(seq func(func(any, error) bool)) (err error) {
		seq(func(_ any, e error) bool { err = e; return e == nil })
		return err
	}
	ask := func(into func() any, q Question) error {
		return first(func(yield func(any, error) bool) {
			rows, err := c.Ask(t.Context(), q)
			if err != nil {
				yield(nil, err)
				return
			}
			defer rows.Close()
			for rows.Next() {
				v := into()
				if !yield(v, rows.Scan(v)) {
					return
				}
			}
			yield(nil, rows.Err())
		})
	}
	for want, err := range map[string]error{
		"map[string]int is no column":        nested,
		"int cannot be a column of type ut":  typed,
		`row 1, column "a": 256 does not f`:  large,
		"86400 does not fit time32[s]":       clock,
		"is not UTF-8: use []byte":           text,
		`row 1, column "a": "1.125" has mor`: price,
		`both called "a"`:                    twice,
		`the columns differ`:                 other,
		`there is no column "Prodct"`:        ask(func() any { return &struct{ Prodct string }{} }, From("orders")),
		"has a missing value: make the fi":   ask(func() any { return &struct{ Note string }{} }, From("orders")),
		"does not go into a bool":            ask(func() any { return &struct{ Product bool }{} }, From("orders")),
		"-3 does not fit a uint8": ask(func() any {
			return &struct {
				U uint8 `wherry:"user id"`
			}{}
		}, From("orders")),
		"Scan takes a pointer to a struct": ask(func() any { return 5 }, From("orders")),
		`there is no column "prise"`:       ask(func() any { return &sale{} }, From("orders").Where("prise > 1")),
	} {
		if err = load(err); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if !errors.Is(large, structs.ErrStruct) {
		t.Error(large)
	}
}
