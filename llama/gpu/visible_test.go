package gpu

import (
	"slices"
	"testing"
)

// env is an environment of pairs.
func env(pairs ...string) Env {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestVisibleNvidia(t *testing.T) {
	cards := []card{
		{maker: nvidia, index: 0, uuid: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"},
		{maker: nvidia, index: 1, uuid: "GPU-8932aaaa-d72c-4106-c12f-20bd9faed9f6"},
		{maker: nvidia, index: 2, uuid: "GPU-2dee1e25-b3b5-007e-2b55-79f2d0f2ebe5"},
	}
	const v = "CUDA_VISIBLE_DEVICES"
	all := []int{0, 1, 2}
	for _, c := range []struct {
		name    string
		env     Env
		want    []int
		ordered bool
		hidden  []int
	}{
		{"not set", env(), all, true, nil},
		{"numbers", env(v, "2,1"), []int{2, 1}, true, []int{0}},
		{"blanks", env(v, " 2 , 1 "), []int{2, 1}, true, []int{0}},
		{"what is wrong ends the list", env(v, "0,2,-1,1"), []int{0, 2}, true, []int{1}},
		{"a number that is not there", env(v, "1,3,0"), []int{1}, true, []int{0, 2}},
		{"a word", env(v, "0,first,1"), []int{0}, true, []int{1, 2}},
		{"none", env(v, ""), nil, true, all},
		{"minus one", env(v, "-1"), nil, true, all},
		{"a UUID", env(v, cards[2].uuid), []int{2}, true, []int{0, 1}},
		{"the beginning of one", env(v, "GPU-2DEE,GPU-8932f"), []int{2, 0}, true, []int{1}},
		{"the beginning of two", env(v, "GPU-2dee,GPU-8932"), []int{2}, true, []int{0, 1}},
		{"no UUID", env(v, "GPU-"), nil, true, all},
		{"a part by MIG", env(v, "MIG-8932f937/1/0"), all, false, nil},
		{"fastest first", env("CUDA_DEVICE_ORDER", "FASTEST_FIRST"), all, false, nil},
		{"numbers, fastest first", env("CUDA_DEVICE_ORDER", "FASTEST_FIRST", v, "1"), all, false, nil},
		{"UUIDs, fastest first", env("CUDA_DEVICE_ORDER", "FASTEST_FIRST", v, "GPU-2dee,GPU-8932a"), []int{2, 1}, true, []int{0}},
		{"none, fastest first", env("CUDA_DEVICE_ORDER", "FASTEST_FIRST", v, "-1"), nil, true, all},
		{"by bus", env("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), all, true, nil},
	} {
		s := visibleNvidia(cards, c.env)
		var got, hidden []int
		for _, v := range s.cards {
			got = append(got, v.index)
		}
		for i := range cards {
			if s.hidden[i] != "" {
				hidden = append(hidden, i)
			}
		}
		if !slices.Equal(got, c.want) || s.ordered != c.ordered || !slices.Equal(hidden, c.hidden) {
			t.Errorf("%s: %v, ordered %v, hidden %v", c.name, got, s.ordered, hidden)
		}
	}
}

func TestVisibleAMD(t *testing.T) {
	one := []card{{maker: amd, uuid: "GPU-1d2c"}}
	two := append(one, card{maker: amd, index: 1, uuid: "GPU-2d2c"})
	for _, c := range []struct {
		name   string
		cards  []card
		env    Env
		seen   int
		hidden int
	}{
		{"not set", two, env(), 2, 0},
		{"by UUID", two, env("ROCR_VISIBLE_DEVICES", "GPU-2d2c"), 1, 1},
		{"by UUID, then none", two, env("ROCR_VISIBLE_DEVICES", "GPU-2d2c", "HIP_VISIBLE_DEVICES", "-1"), 0, 2},
		{"a number says not which", two, env("HIP_VISIBLE_DEVICES", "1"), 2, 0},
		{"the only one", one, env("HIP_VISIBLE_DEVICES", "0"), 1, 0},
		{"CUDA's counts where there is none of HIP's", one, env("CUDA_VISIBLE_DEVICES", ""), 0, 1},
		{"and not where there is", one, env("CUDA_VISIBLE_DEVICES", "", "HIP_VISIBLE_DEVICES", "0"), 1, 0},
	} {
		if s := visibleAMD(c.cards, c.env); len(s.cards) != c.seen || len(s.hidden) != c.hidden {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("0,2,-1,GPU-89", "PCI_BUS_ID")
	f.Fuzz(func(t *testing.T, list, order string) {
		cards := []card{{maker: nvidia, uuid: "GPU-8932f937"}, {maker: nvidia, index: 1, uuid: "GPU-8932aaaa"}}
		s := visibleNvidia(cards, env("CUDA_VISIBLE_DEVICES", list, "CUDA_DEVICE_ORDER", order))
		for _, c := range s.cards {
			if s.hidden[c.index] != "" || !slices.Contains(cards, c) {
				t.Errorf("%+v", s)
			}
		}
	})
}
