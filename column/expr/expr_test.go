package expr

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/column"
)

func columns(t testing.TB) column.Schema {
	t.Helper()
	var out column.Schema
	for _, c := range []string{"user id:i64", "status:u16", "big:u64", "ms:f64?", "level:utf8?", "ok:bool", "when:timestamp[us, Europe/Berlin]", "day:date32", "price:decimal128(9, 2)", "local:timestamp[us]"} {
		name, text, _ := strings.Cut(c, ":")
		text, nullable := strings.CutSuffix(text, "?")
		typ, err := column.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, column.Column{Name: name, Type: typ, Nullable: nullable})
	}
	return out
}

func TestParse(t *testing.T) {
	s := columns(t)
	for text, want := range map[string]string{
		"-1.5 < price && f64(price) > 2":      "and.bool(lt.bool(-1.5, #8), gt.bool(cast.f64(#8), 2))",
		"status >= 500 && !isnull(ms)":        "and.bool(ge.bool(#1, 500), not.bool(isnull.bool(#3)))",
		`col("user id") % 7 == 0`:             "eq.bool(mod.i64(#0, 7), 0)",
		"big > 18446744073709551614":          "gt.bool(#2, 18446744073709551614)",
		"ms * 2 < 1e3":                        "lt.bool(mul.f64(#3, 2), 1000)",
		"-1 < status":                         "lt.bool(-1, #1)",
		`level == "warn" || ok`:               "or.bool(eq.bool(#4, \"warn\"), #5)",
		`when < "2026-03-01T12:00:00Z"`:       "lt.bool(#6, 1772366400000000)",
		`when == "2026-10-25T02:30:00+02:00"`: "eq.bool(#6, 1792888200000000)",
		`when < "2026-03-01T13:00"`:           "lt.bool(#6, 1772366400000000)", // in Berlin
		`day == "1970-01-03"`:                 "eq.bool(#7, 2)",
		"f64(status) / ms":                    "div.f64(cast.f64(#1), #3)",
		`hasprefix(level, "w")`:               "hasprefix.bool(#4, \"w\")",
		"(status)":                            "#1",
		"-(-1) < status":                      "lt.bool(1, #1)",
		"1 + 2":                               "add.i64(1, 2)",
		"status == 0 || status == 0x10":       "or.bool(eq.bool(#1, 0), eq.bool(#1, 16))",
		"status == 0o10 && ms < 00.5":         "and.bool(eq.bool(#1, 8), lt.bool(#3, 0.5))",
		"i64(when) / 1000000 == status + 0":   "eq.bool(div.i64(cast.i64(#6), 1000000), add.i64(#1, 0))",
	} {
		n, err := Parse(text, s)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if n.String() != want {
			t.Errorf("%s is %v, want %s", text, n, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	s := columns(t)
	for text, want := range map[string]string{
		"statsu == 1":                   `at 1: there is no column "statsu"; did you mean "status"?`,
		"ok && isnul(level)":            `at 7: there is no function "isnul"; did you mean "isnull"?`,
		"status == 010":                 "at 11: 010 would be 8, an octal number: write 10, or 0o10",
		"ms < -00":                      "at 7: 00 would be 0, an octal number: write 0, or 0o0",
		"price == 0_7":                  "at 10: 0_7 would be 7, an octal number: write 7, or 0o7",
		"i64(0755) == status":           "at 5: 0755 would be 493, an octal number: write 755, or 0o755",
		"status == 08":                  "at 12: invalid digit '8' in octal literal: write the number without zeros in front",
		"status == ":                    "at 1",
		"status == big":                 "i64 == u64: both sides must be of one type",
		"status + ms":                   "i64 + f64",
		"status == 1.5":                 "at 11: 1.5 is no i64",
		`status == "x"`:                 "i64 == utf8",
		"big == -1":                     "-1 is no u64",
		"ok < ok":                       "does not compare bools",
		"status && ok":                  "i64 && bool",
		"level + level":                 "does not compute with utf8",
		"ms % 2.0":                      "does not compute with f64",
		"!status":                       "! cannot stand before i64",
		`when == "2026-03-29T02:30:00"`: `at 9: "2026-03-29T02:30:00": clocks of Europe/Berlin were put forward past it, so it does not exist there: write it with an offset, as in +01:00`,
		`when < "2026-10-25 02:30"`:     `at 8: "2026-10-25 02:30": clocks of Europe/Berlin were put back, so it exists twice there: write it with an offset, as in +01:00`,
		`when > "yesterday"`:            `"yesterday" is no moment`,
		"when > local":                  "one is an instant, the other a local time",
		`day < "2026-03-01T12:00"`:      `"2026-03-01T12:00" is no date`,
		"price > 1.005":                 "1.005 is no decimal128(9, 2): it has more digits",
		"price > 1e40":                  "1e40 is no decimal128(9, 2)",
		"price + price":                 "does not compute with decimal128",
		"i64(price)":                    "i64 does not convert decimal128",
		"isnull(ms, ok)":                "isnull takes 1 arguments, here are 2",
		"contains(level, ok)":           "contains takes text, not bool",
		"status[0]":                     "this has no meaning here",
		"ok and status > 1":             "at 4: expected 'EOF', found and: write &&",
		"ok OR ok":                      "at 4: expected 'EOF', found OR: write ||",
		"status in 1":                   "at 8: expected 'EOF', found in: write ==, and || between several",
		"status is 1":                   "at 8: expected 'EOF', found is: write isnull(…), or ==",
		"user id == 3":                  "at 6: expected 'EOF', found id: a column whose name is not one word is written col(\"user id\")",
		"ms != NULL":                    "at 7: there is no column \"NULL\"; what is missing is asked for by isnull(…)",
		"ms == NaN":                     "at 7: there is no column \"NaN\"; NaN differs from itself: x != x finds it",
		"ms == nil":                     "at 7: there is no column \"nil\"; what is missing is asked for by isnull(…)",
		"status &^ 1":                   "there is no operator &^",
		"contains(level,level)":         "looks for text in quotes",
		`f64(level)`:                    "f64 does not convert utf8",
	} {
		if _, err := Parse(text, s); !errors.Is(err, ErrExpr) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Condition("status + 1", s); err == nil || !strings.Contains(err.Error(), "a condition is true or false") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	s := columns(f)
	for _, text := range []string{"status >= 500 && !isnull(ms)", `when < "2026-03-01"`, "-(1)", `col("user id")`, "price == 0x1p999999", "price == 1e-999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := Parse(text, s); err == nil && (n.Kind == 0 || n.Type.Validate() != nil) {
			t.Errorf("%q has no type: %v", text, n)
		}
	})
}
