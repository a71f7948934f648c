package ways

import (
	"fmt"
	"math"
	"strings"
)

// AtLeast and AtMost write a size so that figures side by side do not seem to
// contradict what was decided from them: what is needed is rounded up, what is
// there is rounded down.
func AtLeast(bytes uint64) string { return size(bytes, math.Ceil, -slack) }

// AtMost is AtLeast for what is there.
func AtMost(bytes uint64) string { return size(bytes, math.Floor, slack) }

// slack keeps 11.4 GiB, a few bytes short because it was written as a decimal,
// from being shown as 11.3.
const slack = 1e-4

func size(bytes uint64, round func(float64) float64, slack float64) string {
	if mib := round(float64(bytes)/(1<<20) + slack); mib < 1024 {
		return fmt.Sprintf("%.0f MiB", max(0, mib))
	}
	return fmt.Sprintf("%.1f GiB", round(float64(bytes)/(1<<30)*10+slack)/10)
}

// List joins names as one would say them.
func List(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}
