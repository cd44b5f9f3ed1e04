package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// asker makes random questions, as wherry and as SQL has them.
type asker struct{ *rand.Rand }

// said is an expression in both.
type said struct{ ours, sql string }

func (a asker) one(of ...said) said { return of[a.IntN(len(of))] }

// plain is an expression that both write alike.
func plain(text string) said { return said{text, text} }

func (a asker) condition(depth int) said {
	if depth > 0 && a.IntN(2) == 0 {
		x, y := a.condition(depth-1), a.condition(depth-1)
		switch a.IntN(5) {
		case 0:
			return said{"!(" + x.ours + ")", "not (" + x.sql + ")"}
		case 1:
			return said{"(" + x.ours + " || " + y.ours + ")", "(" + x.sql + " or " + y.sql + ")"}
		}
		return said{"(" + x.ours + " && " + y.ours + ")", "(" + x.sql + " and " + y.sql + ")"}
	}
	op := a.one(said{"==", "="}, said{"!=", "<>"}, plain("<"), plain("<="), plain(">"), plain(">="))
	compare := func(x string, values int) said {
		v := a.IntN(values)
		return said{fmt.Sprintf("%s %s %d", x, op.ours, v), fmt.Sprintf("%s %s %d", x, op.sql, v)}
	}
	switch a.IntN(8) {
	case 0:
		return said{"isnull(ms)", "ms is null"}
	case 1:
		return said{`hasprefix(level, "w")`, "starts_with(level, 'w')"}
	case 2:
		return said{"level " + op.ours + ` "info"`, "level " + op.sql + " 'info'"}
	case 3:
		return compare("v % 7", 7)
	case 4:
		return compare("host", 100)
	case 5:
		return compare("host * 3 - 50", 250)
	case 6:
		v := a.IntN(8000)
		return said{fmt.Sprintf("ms * 2.0 %s %d.5", op.ours, v/4), fmt.Sprintf("ms * 2.0 %s %d.5", op.sql, v/4)}
	}
	return compare("status", 600)
}

func (a asker) question() inquiry {
	var out inquiry
	where := said{"true", "true"}
	if a.IntN(6) > 0 {
		where = a.condition(2)
		out.Where = where.ours
	}
	if a.IntN(5) == 0 {
		columns := []string{"v", "k", "host", "status", "level", "ms"}
		down, desc := "", ""
		if a.IntN(2) == 0 {
			down, desc = "-", " desc nulls last"
		}
		out.Select, out.Order, out.Limit = columns, []string{down + "v", "k", "host"}, uint64(1+a.IntN(50))
		out.sql = fmt.Sprintf("select %s from few where %s order by v%s, k, host limit %d", strings.Join(columns, ", "), where.sql, desc, out.Limit)
		return out
	}
	var keys, sql []string
	for range a.IntN(3) {
		k := a.one(plain("level"), plain("host"), said{"status / 100", "status // 100"}, plain("v % 10"), said{"isnull(ms)", "ms is null"})
		name := fmt.Sprintf("g%d", len(keys))
		keys, sql = append(keys, name), append(sql, k.sql+" as "+name)
		out.Group = append(out.Group, name+"="+k.ours)
	}
	for i := range 1 + a.IntN(4) {
		g := a.one(said{"count()", "count(*)"}, plain("count(ms)"), plain("sum(v)"), plain("sum(host)"), said{"mean(ms)", "avg(ms)"}, plain("min(v)"), plain("max(ms)"), plain("min(level)"),
			plain("max(status)"), plain("stddev(ms)"), said{"distinct(host)", "count(distinct host)"}, said{"distinct(level)", "count(distinct level)"}, plain("sum(ms)"), said{"mean(status)", "avg(status)"})
		out.Agg = append(out.Agg, fmt.Sprintf("a%d=%s", i, g.ours))
		sql = append(sql, g.sql)
	}
	out.sql = "select " + strings.Join(sql, ", ") + " from few where " + where.sql
	if len(keys) > 0 {
		out.Order = keys
		by := strings.Join(keys, " nulls last, ") + " nulls last"
		out.sql += " group by " + strings.Join(keys, ", ") + " order by " + by
		if a.IntN(3) == 0 {
			out.Limit = uint64(1 + a.IntN(20))
			out.sql += fmt.Sprintf(" limit %d", out.Limit)
		}
	}
	return out
}
