package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const mib = 1 << 20

// recorded is an answer in testdata.
func recorded(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tools answers for programs by name: for the first key that the call begins with.
func tools(answers map[string]string) Ask {
	return func(_ context.Context, program string, args ...string) (string, error) {
		call := strings.Join(append([]string{program}, args...), " ")
		for begin, answer := range answers {
			if strings.HasPrefix(call, begin) {
				return answer, nil
			}
		}
		return "", &exec.Error{Name: program, Err: exec.ErrNotFound}
	}
}

var allFields = []string{fieldIndex, fieldUUID, fieldMIG, fieldTotal, fieldUsed, fieldFree, fieldName}

func TestParseNvidia(t *testing.T) {
	two := parseNvidia(recorded(t, "nvidia_two.csv"), allFields)
	want := []card{
		{maker: nvidia, index: 0, uuid: "GPU-1f2e3d4c-0000-4000-8000-00000000aaaa", name: "NVIDIA GeForce RTX 4090", total: 24576 * mib, used: 5120 * mib, free: 19140 * mib, inUse: true},
		{maker: nvidia, index: 1, uuid: "GPU-9a8b7c6d-0000-4000-8000-00000000bbbb", name: "NVIDIA GeForce RTX 3060", total: 12288 * mib, used: 11 * mib, free: 12022 * mib, inUse: true},
	}
	if !slices.Equal(two, want) {
		t.Errorf("%+v", two)
	}
	if many := parseNvidia(recorded(t, "nvidia_many.csv"), allFields); len(many) != 8 || many[7].used != 20007*mib {
		t.Errorf("%+v", many)
	}
	gb10 := parseNvidia(recorded(t, "nvidia_gb10.csv"), allFields)
	if len(gb10) != 1 || !gb10[0].unified || gb10[0].inUse || gb10[0].total != 0 {
		t.Errorf("%+v", gb10)
	}
	mig := parseNvidia(recorded(t, "nvidia_mig.csv"), allFields)
	if len(mig) != 2 || !mig[0].divided || mig[0].unified || mig[0].inUse || mig[1].divided || !mig[1].inUse {
		t.Errorf("%+v", mig)
	}
	// Trouble is not the same as having no memory of its own.
	lost := parseNvidia(recorded(t, "nvidia_lost.csv"), allFields)
	if len(lost) != 2 || lost[1].unified || lost[1].inUse || lost[1].trouble != "GPU requires reset" || lost[0].trouble != "" || lost[1].name != "NVIDIA RTX A5000" {
		t.Errorf("%+v", lost)
	}
	for _, nothing := range []string{"", "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "a, b, c, d, e, f, g\n", "-1,,,,,,x\n"} {
		if got := parseNvidia(nothing, allFields); got != nil {
			t.Errorf("%q: %+v", nothing, got)
		}
	}
}

// An old release is asked again without the fields that it does not know.
func TestAskNvidiaForLess(t *testing.T) {
	var asked []string
	old := func(_ context.Context, program string, args ...string) (string, error) {
		asked = append(asked, program+" "+args[0])
		for _, unknown := range []string{fieldMIG, fieldFree} {
			if strings.Contains(args[0], unknown) {
				return fmt.Sprintf("Field \"%s\" is not a valid field to query.\n\n", unknown), errors.New("exit status 2")
			}
		}
		return "0, GPU-5, 11178 MiB, 178 MiB, Tesla K80, the second\n", nil
	}
	_, cards, err := askNvidia(t.Context(), old)
	want := card{maker: nvidia, uuid: "GPU-5", name: "Tesla K80, the second", total: 11178 * mib, used: 178 * mib, free: 11000 * mib, inUse: true}
	if err != nil || len(cards) != 1 || cards[0] != want || len(asked) != 3 {
		t.Errorf("%+v, %v after %q", cards, err, asked)
	}
	for said, calls := range map[string]int{
		`Field "name" is not a valid field to query.`: 1, `Field "index" is not a valid field to query.`: 1, `Field "clocks" is not a valid field to query.`: 1,
		"NVIDIA-SMI has failed": 1,
	} {
		n := 0
		_, cards, err := askNvidia(t.Context(), func(context.Context, string, ...string) (string, error) {
			n++
			return said, errors.New("exit status 9")
		})
		if err == nil || !strings.Contains(err.Error(), said) || cards != nil || n != calls {
			t.Errorf("%q: %v, %v after %d calls", said, cards, err, n)
		}
	}
	// It is looked for in every place, and missing is no trouble.
	program, cards, err := askNvidia(t.Context(), tools(map[string]string{"/usr/lib/wsl/lib/nvidia-smi": recorded(t, "nvidia_two.csv")}))
	if program != "/usr/lib/wsl/lib/nvidia-smi" || len(cards) != 2 || err != nil {
		t.Errorf("%q %+v %v", program, cards, err)
	}
	if program, cards, err := askNvidia(t.Context(), tools(nil)); program != "" || cards != nil || err != nil {
		t.Errorf("%q %+v %v", program, cards, err)
	}
}

func TestParseNvidiaProcesses(t *testing.T) {
	got := parseNvidiaProcesses(recorded(t, "nvidia_processes.csv") + "GPU-1, -4, 5\nno such thing\n")
	if len(got) != 3 || got[0] != (process{"GPU-1f2e3d4c-0000-4000-8000-00000000aaaa", 4242, 4100 * mib, true}) || got[2].known || got[2].pid != 978 {
		t.Errorf("%+v", got)
	}
}

func checkCards(t *testing.T, cards []card) {
	if len(cards) > maxCards {
		t.Errorf("%d cards", len(cards))
	}
	seen := map[int]bool{}
	for _, c := range cards {
		if c.used > c.total || c.free > c.total || c.total > 1<<50 || c.index < 0 || seen[c.index] || !c.inUse && (c.used|c.free) != 0 || c.inUse && c.total == 0 {
			t.Errorf("%+v", c)
		}
		seen[c.index] = true
	}
}

func FuzzParseNvidia(f *testing.F) {
	for _, name := range []string{"nvidia_two.csv", "nvidia_many.csv", "nvidia_gb10.csv", "nvidia_mig.csv", "nvidia_lost.csv", "nvidia_processes.csv"} {
		f.Add(recorded(f, name))
	}
	f.Fuzz(func(t *testing.T, out string) {
		checkCards(t, parseNvidia(out, allFields))
		for _, p := range parseNvidiaProcesses(out) {
			if p.pid <= 0 || p.bytes > 1<<50 || !p.known && p.bytes != 0 {
				t.Errorf("%+v", p)
			}
		}
		_ = unknownField(out)
	})
}
