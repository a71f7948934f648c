package gpu

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseAMD(t *testing.T) {
	want := []card{
		{maker: amd, index: 0, uuid: "GPU-1d2c3b4a59687786", name: "AMD Radeon RX 7900 XTX", total: 24560 * mib, used: 1000 * mib, free: 23560 * mib, inUse: true},
		{maker: amd, index: 1, name: "AMD Radeon 8060S Graphics", total: 512 * mib, used: 459 * mib, free: 53 * mib, inUse: true},
		{maker: amd, index: 2},
	}
	if got := parseAMD(recorded(t, "amd_metric.json"), recorded(t, "amd_static.json")); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	// Older releases have the list without the object around it.
	if got := parseAMD(`[{"gpu": 4, "mem_usage": {"total_vram": {"value": 1, "unit": "GB"}}}]`, ""); !slices.Equal(got, []card{{maker: amd, index: 4, total: 1 << 30}}) {
		t.Errorf("%+v", got)
	}
	rocm := parseROCm(recorded(t, "rocm.json"))
	if len(rocm) != 2 || rocm[0].used != 1048576000 || rocm[0].uuid != want[0].uuid || rocm[0].name != want[0].name || rocm[1].total != 512*mib || rocm[1].uuid != "" {
		t.Errorf("%+v", rocm)
	}
	for _, out := range []string{"", "{}", "[]", "{", "[[]]", "null", `{"card0": 5}`, `{"card-1": {}}`, "ERROR: no GPU\n", `[{"gpu": -1, "mem_usage": {}}]`, `[{"gpu": "0"}]`} {
		if got := append(parseROCm(out), parseAMD(out, out)...); got != nil {
			t.Errorf("%q: %+v", out, got)
		}
	}
}

func TestAskAMD(t *testing.T) {
	amdAnswers := map[string]string{"amd-smi metric": recorded(t, "amd_metric.json"), "amd-smi static": recorded(t, "amd_static.json")}
	if cards, err := askAMD(t.Context(), tools(amdAnswers)); len(cards) != 3 || err != nil || cards[0].name == "" {
		t.Errorf("%+v %v", cards, err)
	}
	if cards, err := askAMD(t.Context(), tools(map[string]string{"/opt/rocm/bin/rocm-smi": recorded(t, "rocm.json")})); len(cards) != 2 || err != nil {
		t.Errorf("%+v %v", cards, err)
	}
	if cards, err := askAMD(t.Context(), tools(nil)); cards != nil || err != nil {
		t.Errorf("%+v %v", cards, err)
	}
	failing := func(context.Context, string, ...string) (string, error) {
		return "no permission\n", errors.New("exit status 1")
	}
	if cards, err := askAMD(t.Context(), failing); cards != nil || err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("%+v %v", cards, err)
	}
}

func FuzzParseAMD(f *testing.F) {
	for _, name := range []string{"rocm.json", "amd_metric.json", "amd_static.json"} {
		f.Add(recorded(f, name))
	}
	f.Fuzz(func(t *testing.T, out string) {
		checkCards(t, parseROCm(out))
		checkCards(t, parseAMD(out, out))
	})
}
