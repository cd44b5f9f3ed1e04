package client

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/wherry-fabric/wherry/query"
)

// Counts and sums of the rows that a condition leaves, few or many of a vector: of numbers whose sums are sure to fit, with a sign and without, with missing ones
// and none; after comparisons of each type with a number on either side, at the bounds of types too, and where the condition itself is missing.
func TestQuerySumsOfSome(t *testing.T) {
	b := newBench(t, "shm", "n1")
	c := b.connect(t, tokenOwner)
	r := rand.New(rand.NewPCG(11, 15))
	rows := randomRows(r, 5003)
	for i := range rows {
		rows[i].B = perhaps(r, i, (r.Int64N(1<<20)-1<<19)<<24)
		rows[i].U = perhaps(r, i, r.Uint64N(1<<44))
		if i >= 2500 { // chunks that miss none
			rows[i].B, rows[i].U = new(int64), new(uint64)
			*rows[i].B, *rows[i].U = int64(i-4000)<<30, uint64(i)<<20
		}
	}
	table := loadRandom(t, b, c, "sums", rows, 2500)
	conditions := []string{"c >= 0", "k", "!k || isnull(f)", "b < c", "u >= u64(c)", "b == b", "c % 100 == 3", "c % 9 == 3", "c % 7 == 3", "s == \"info\""}
	numbers := map[string][]string{"a": {"-128", "127", "5", "-129"}, "b": {"0", "-9223372036854775808", "9223372036854775807", "17179869184"}, "c": {"0", "4294967295", "2600", "-1"},
		"d": {"0", "65535", "4001", "65536"}, "u": {"u64(0)", "u64(1048576000)", "u64(9223372036854775807)"}}
	for column, values := range numbers {
		for _, v := range values {
			for _, op := range []string{"==", "!=", "<", "<=", ">", ">="} {
				conditions = append(conditions, fmt.Sprintf("%s %s %s", column, op, v), fmt.Sprintf("%s %s %s", v, op, column))
			}
		}
	}
	for i, where := range conditions {
		if testing.Short() && i%8 != 0 {
			continue
		}
		q := query.Query{Where: where, Agg: []string{"n=count()", "m=count(b)", "s=sum(b)", "t=sum(u)", "v=mean(b)"}}
		if !checkRandom(t, c, table, rows, q) {
			t.Errorf("%s: it has no answer", where)
		}
	}
}
