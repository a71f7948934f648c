package record_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"relay/p2p/record"
)

func TestUnmarshalTakesOneFormOnly(t *testing.T) {
	for _, tc := range []struct {
		hex, name string
		ok        bool
	}{
		{"00", "zero", true},
		{"17", "23", true},
		{"1818", "24", true},
		{"1817", "23 in two bytes", false},
		{"190100", "256", true},
		{"1900ff", "255 in three bytes", false},
		{"1a00010000", "65536", true},
		{"1a0000ffff", "65535 in five bytes", false},
		{"1b0000000100000000", "2^32", true},
		{"1b00000000ffffffff", "2^32-1 in nine bytes", false},
		{"1bffffffffffffffff", "2^64-1", true},
		{"3b7fffffffffffffff", "-2^63", true},
		{"3b8000000000000000", "-2^63-1", false},
		{"f4", "false", true},
		{"f5", "true", true},
		{"f6", "null", true},
		{"f7", "undefined", false},
		{"e0", "simple 0", false},
		{"f820", "simple 32", false},
		{"f93e00", "1.5", true},
		{"fa3fc00000", "1.5 in four bytes", false},
		{"fb3ff8000000000000", "1.5 in eight bytes", false},
		{"fb3ff199999999999a", "1.1", true},
		{"f97e00", "NaN", true},
		{"f97e01", "another NaN", false},
		{"f97c00", "infinity", true},
		{"a0", "empty map", true},
		{"a2616100616201", "a, b", true},
		{"a2616201616100", "b, a", false},
		{"a2616100616101", "a twice", false},
		{"a201006161 01", "1, a", true},
		{"a10000", "integer key", true},
		{"a1410000", "bytes as key", false},
		{"a1f500", "true as key", false},
		{"a1f9000000", "float as key", false},
		{"9fff", "indefinite array", false},
		{"bfff", "indefinite map", false},
		{"5f4100ff", "indefinite bytes", false},
		{"c000", "tag", false},
		{"c24100", "big number", false},
		{"6161", "text", true},
		{"61ff", "text not UTF-8", false},
		{"41ff", "bytes", true},
		{"6261", "text cut short", false},
		{"5bffffffffffffffff", "bytes longer than memory", false},
		{"9bffffffffffffffff", "array longer than memory", false},
		{"9a00010001", "array over the limit", false},
		{"0000", "two items", false},
		{"", "nothing", false},
		{"1c", "reserved head", false},
		{strings.Repeat("81", 16) + "00", "16 deep", true},
		{strings.Repeat("81", 17) + "00", "17 deep", false},
		{strings.Repeat("81", 60000), "60000 deep", false},
	} {
		data, err := hex.DecodeString(strings.ReplaceAll(tc.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		var v any
		err = record.Unmarshal(data, &v)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err != nil && !errors.Is(err, record.ErrPayload) {
			t.Errorf("%s: %v is not ErrPayload", tc.name, err)
		}
	}
}

// The decoder does not look into fields that it leaves out.
func TestUnmarshalLooksIntoUnknownFields(t *testing.T) {
	for _, bad := range []string{"a2616100616101", "a2616201616100", "1817", "61ff", "c000", "f7"} {
		data, err := hex.DecodeString("a16178" + bad) // {"x": bad}
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Name string `cbor:"name"`
		}
		if err := record.Unmarshal(data, &v); !errors.Is(err, record.ErrPayload) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestMarshalIsDeterministic(t *testing.T) {
	type thing struct {
		Name string            `cbor:"name"`
		Z    map[string]uint64 `cbor:"z"`
		Load float64           `cbor:"load"`
		Sub  *thing            `cbor:"sub,omitempty"`
	}
	v := thing{Name: "attic", Z: map[string]uint64{"b": 1, "aa": 2, "a": math.MaxUint64}, Load: 0.5, Sub: &thing{}}
	first, err := record.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, err := record.Marshal(v)
		if err != nil || !bytes.Equal(first, again) {
			t.Fatalf("%x and %x (%v)", first, again, err)
		}
	}
	var back thing
	if err := record.Unmarshal(first, &back); err != nil {
		t.Fatal(err)
	}
	if back.Name != v.Name || back.Z["a"] != math.MaxUint64 || back.Load != 0.5 || back.Sub == nil {
		t.Errorf("%+v came back as %+v", v, back)
	}
	var other struct {
		Name string `cbor:"name"`
	}
	if err := record.Unmarshal(first, &other); err != nil || other.Name != "attic" {
		t.Errorf("unknown fields: %v, %+v", err, other)
	}
}

func TestMarshalRefuses(t *testing.T) {
	deep := any(0)
	for range 17 {
		deep = []any{deep}
	}
	for name, v := range map[string]any{
		"a func":    func() {},
		"a tag":     cbor.Tag{Number: 1, Content: 2},
		"too deep":  deep,
		"too large": make([]byte, record.MaxSize),
		"not UTF-8": "\xff",
	} {
		if _, err := record.Marshal(v); !errors.Is(err, record.ErrPayload) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is taken must be what would be written: two encodings of one value
// would be two records of one content.
func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{"a2616100616201", "fb3ff199999999999a", "83010203", "f97e00", "6161", "a201006161f6", "9fff"} {
		data, _ := hex.DecodeString(s)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		if err := record.Unmarshal(data, &v); err != nil {
			if !errors.Is(err, record.ErrPayload) {
				t.Fatalf("%v is not ErrPayload", err)
			}
			return
		}
		again, err := record.Marshal(v)
		if err != nil {
			t.Fatalf("%x was read and cannot be written: %v", data, err)
		}
		if !bytes.Equal(data, again) {
			t.Fatalf("%x was read and is written as %x", data, again)
		}
	})
}

// TestMarshalOver: what a newer release wrote stays where an older one writes anew.
func TestMarshalOver(t *testing.T) {
	type newer struct {
		Name  string         `cbor:"1,keyasint"`
		Limit int            `cbor:"2,keyasint,omitempty"`
		Tags  []string       `cbor:"3,keyasint,omitempty"`
		More  map[string]int `cbor:"9,keyasint,omitempty"`
	}
	type older struct {
		Name  string   `cbor:"1,keyasint"`
		Limit int      `cbor:"2,keyasint,omitempty"`
		Tags  []string `cbor:"3,keyasint,omitempty"`
	}
	was, err := record.Marshal(newer{"a", 5, []string{"x"}, map[string]int{"b": 2}})
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{"a value": older{Name: "b", Tags: []string{"y"}}, "a pointer": &older{Name: "b", Tags: []string{"y"}}} {
		data, err := record.MarshalOver(v, was)
		if err != nil {
			t.Fatal(err)
		}
		var is newer
		if err := record.Unmarshal(data, &is); err != nil || !reflect.DeepEqual(is, newer{"b", 0, []string{"y"}, map[string]int{"b": 2}}) {
			t.Errorf("%s: %+v, %v", name, is, err)
		}
		plain, err := record.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, none := range [][]byte{nil, {0xa0}, {0x01}, {0xff}, plain} { // An empty map, a number, nonsense, what says no more.
			if data, err := record.MarshalOver(v, none); err != nil || !bytes.Equal(data, plain) {
				t.Errorf("%s over %x: %x, %v", name, none, data, err)
			}
		}
	}
}
