//go:build linux

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor times in /proc.
const tick = time.Second / 100

// processorTime is what some processes have taken so far, together.
func processorTime(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// Behind the name, which may hold anything: user and system time are the 12th
		// and 13th.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

var resident = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// rss is the resident memory of some processes, in KiB.
func rss(pids []int) ([]int64, error) {
	var list []int64
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return nil, err
		}
		m := resident.FindSubmatch(status)
		if m == nil {
			return nil, fmt.Errorf("process %d has no memory", pid)
		}
		n, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
