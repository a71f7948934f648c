// Command plan prints the figures of the planner and of leadership. One line per
// figure; what it does goes to stderr.
package main

import "relay/cmd/bench/figure"

func main() {
	figure.Main([]figure.Part{
		{Name: "place", Prints: "plan_100x200_ms", Measure: placing},
	})
}
