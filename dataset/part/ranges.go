package part

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/wherry-fabric/wherry/column"
)

// RangeError is a value that its column's type does not have: a decimal of too many digits, or a time that is none of a day.
type RangeError struct {
	Row int // of the array
	Why string
}

func (e *RangeError) Error() string { return fmt.Sprintf("row %d: %s", e.Row, e.Why) }

// CheckRange finds a value out of its type's range. Beneath missing values there are zeros, so those are not asked for.
func CheckRange(a arrow.Array) error {
	if row, why := stray(a); why != "" {
		return &RangeError{row, why}
	}
	return nil
}

// stray is a value out of range, in an array or within its lists and structs; "" if there is none.
func stray(a arrow.Array) (row int, why string) {
	switch a := a.(type) {
	case *array.Decimal128:
		return strayDecimal(a)
	case *array.Time32:
		unit := a.DataType().(*arrow.Time32Type).Unit
		return strayTime(a, a.Time32Values(), arrow.Time32(column.Unit(unit).PerSecond()*DaySeconds), unit)
	case *array.Time64:
		unit := a.DataType().(*arrow.Time64Type).Unit
		return strayTime(a, a.Time64Values(), arrow.Time64(column.Unit(unit).PerSecond()*DaySeconds), unit)
	case *array.List:
		at, why := stray(a.ListValues())
		if why == "" {
			return 0, ""
		}
		return sort.Search(a.Len()-1, func(r int) bool { _, end := a.ValueOffsets(r); return end > int64(at) }), why
	case *array.Struct:
		for i := range a.NumField() {
			if row, why := stray(a.Field(i)); why != "" {
				return row, why
			}
		}
	}
	return 0, ""
}

// DaySeconds are what a day has for times of day: none has a leap second.
const DaySeconds = 86400

func strayTime[T arrow.Time32 | arrow.Time64](a arrow.Array, values []T, day T, unit arrow.TimeUnit) (int, string) {
	for r, v := range values {
		if v < 0 || v >= day {
			return r, fmt.Sprintf("%d is no %v: a time of day is at least 0, and less than %d: write the column as duration[%v]", v, named(a), day, unit)
		}
	}
	return 0, ""
}

// strayDecimal finds a decimal of more digits than its type has. What is added to each makes those that fit the numbers from 0 to twice the greatest.
func strayDecimal(a *array.Decimal128) (int, string) {
	t := a.DataType().(*arrow.Decimal128Type)
	most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Precision)), nil)
	most.Sub(most, big.NewInt(1))
	addHigh, addLow := new(big.Int).Rsh(most, 64).Uint64(), new(big.Int).And(most, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	mostHigh, mostLow := addHigh<<1|addLow>>63, addLow<<1
	for r, v := range a.Values() {
		low, carry := bits.Add64(v.LowBits(), addLow, 0)
		high, _ := bits.Add64(uint64(v.HighBits()), addHigh, carry)
		if high < mostHigh || high == mostHigh && low <= mostLow {
			continue
		}
		mend := "f64, which rounds it, or as text"
		digits := len(strings.TrimPrefix(v.BigInt().String(), "-"))
		if digits <= column.MaxPrecision {
			mend = fmt.Sprintf("decimal128(%d, %d)", max(digits, int(t.Scale)), t.Scale)
		}
		return r, fmt.Sprintf("%s has more digits than a %v: write the column as %s", v.ToString(t.Scale), named(a), mend)
	}
	return 0, ""
}

// named is an array's type in the words of columns.
func named(a arrow.Array) string {
	t, err := ColumnType(a.DataType())
	if err != nil {
		return a.DataType().String()
	}
	return t.String()
}
