package schema_test

import (
	"fmt"

	"github.com/wherry-fabric/wherry/schema"
)

// A function counts requests by a column; every element answers with a part.
func Example() {
	rows, _ := schema.Parse("name:str,status:u16,bytes:u64")
	params, _ := schema.Parse("by:column,least:u64=0,most:u32=9")
	payload, err := params.EncodeArgs(map[string]string{"by": "status"}, rows)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("payload:", len(payload), "bytes")

	result, _ := schema.Parse("status:u16:key,requests:u64:sum")
	part := func(lines ...[]string) schema.Rows {
		b, _ := schema.NewPartBuilder(result)
		for _, l := range lines {
			_ = b.AppendStrings(l...)
		}
		r, _ := result.DecodePart(b.Finish())
		return r
	}
	all, err := schema.Merge(result, part([]string{"404", "2"}, []string{"200", "5"}), part([]string{"200", "7"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range all.Len() {
		fmt.Println(all.Strings(i))
	}
	// Output:
	// payload: 24 bytes
	// [200 12]
	// [404 2]
}

func ExampleSchema_EncodeArgs_mistake() {
	params, _ := schema.Parse("status:u16")
	_, err := params.EncodeArgs(map[string]string{"statsu": "404"}, nil)
	fmt.Println(err)
	_, err = params.EncodeArgs(map[string]string{"status": "70000"}, nil)
	fmt.Println(err)
	// Output:
	// schema: bad value: there is no parameter "statsu"; did you mean "status"?
	// schema: bad value: parameter status: "70000" is not a u16: out of range, the greatest is 65535
}

func ExampleSchema_CStruct() {
	s, _ := schema.Parse("name:str,status:u16,id:bytes16")
	text, _ := s.CStruct("row")
	fmt.Print(text)
	// Output:
	// struct row { /* name:str,status:u16,id:bytes16 */
	// 	struct { uint32_t offset, length; } name; /* offset 0 */
	// 	uint16_t status; /* offset 8 */
	// 	uint8_t id[16]; /* offset 10 */
	// };
	// _Static_assert(sizeof(struct row) == 28, "layout of row");
}
