package invoke

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/schema"
)

// A byte that is not UTF-8 is escaped where people read it; to a program that reads Arrow the column is binary, in all batches.
func TestAnswerThatIsNotUTF8(t *testing.T) {
	s, err := schema.Parse("name:str,n:u8")
	if err != nil {
		t.Fatal(err)
	}
	a := &Answer{Schema: s}
	for _, name := range []string{"plain", "b\xffd", ""} {
		b, err := schema.NewPartBuilder(s)
		if err == nil {
			err = b.AppendStrings(name, "7")
		}
		if err != nil {
			t.Fatal(err)
		}
		a.Parts = append(a.Parts, b.Rows())
	}
	write := func(f batch.Format) string {
		var out bytes.Buffer
		if err := a.Write(&out, f); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for f, want := range map[batch.Format]string{
		batch.CSV:   "name,n\nplain,7\nb\\xffd,7\n\"\",7\n",
		batch.JSON:  "[\n {\"name\":\"plain\",\"n\":7},\n {\"name\":\"b\\\\xffd\",\"n\":7},\n {\"name\":\"\",\"n\":7}\n]\n",
		batch.Table: "name    n\nplain   7\nb\\xffd  7\n        7\n",
		batch.Raw:   string(a.Parts[0].Part()) + string(a.Parts[1].Part()) + string(a.Parts[2].Part()),
	} {
		if got := write(f); got != want {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
	r, err := ipc.NewReader(bytes.NewReader([]byte(write(batch.Arrow))))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r.Next() {
		names = append(names, string(r.RecordBatch().Column(0).(*array.Binary).Value(0)))
	}
	if len(names) != 3 || names[0] != "plain" || names[1] != "b\xffd" {
		t.Errorf("%q", names)
	}
}
