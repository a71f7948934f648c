package figure

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Value prints one figure.
func Value(name string, v float64, unit string) {
	fmt.Printf("BENCH name=%s value=%.5g unit=%s\n", name, v, unit)
}

// Ratio prints one figure that was measured against another in the same run.
func Ratio(name string, ours, base float64, unit string) {
	fmt.Printf("BENCH name=%s ratio=%.3g ours=%.4g base=%.4g unit=%s\n", name, ours/base, ours, base, unit)
}

// Say tells what is done, and under which load of the machine.
func Say(format string, args ...any) {
	load, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(load) + " ? ? ?")
	fmt.Fprintf(os.Stderr, "%s  load %s %s  %s\n", time.Now().Format("15:04:05"), fields[0], fields[1], fmt.Sprintf(format, args...))
}

// Median is the middle one of some values, at least one; the upper of two.
func Median(list []float64) float64 { return Rank(list, 0.5) }

// Rank is the smallest value that is larger than a share, from 0 to 1, of the
// others.
func Rank(list []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
