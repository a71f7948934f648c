package gpu

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// nvidiaSMI are the places of nvidia-smi: in PATH, in WSL, and where old drivers
// for Windows put it.
var nvidiaSMI = []string{"nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", `C:\Program Files\NVIDIA Corporation\NVSMI\nvidia-smi.exe`}

// The fields of --query-gpu that are read. The name comes last: it alone may
// hold a comma.
const (
	fieldIndex = "index"
	fieldUUID  = "uuid"
	fieldMIG   = "mig.mode.current"
	fieldTotal = "memory.total"
	fieldUsed  = "memory.used"
	fieldFree  = "memory.free"
	fieldName  = "name"
)

// askNvidia asks nvidia-smi for its cards. A field that this release of it does
// not know is left out. A machine without it has no cards, and no error.
func askNvidia(ctx context.Context, ask Ask) (program string, cards []card, err error) {
	fields := []string{fieldIndex, fieldUUID, fieldMIG, fieldTotal, fieldUsed, fieldFree, fieldName}
	for {
		var out string
		program, out, err = askFirst(ctx, ask, nvidiaSMI, "--query-gpu="+strings.Join(fields, ","), "--format=csv,noheader,nounits")
		if program == "" || err == nil {
			return program, parseNvidia(out, fields), err
		}
		unknown := slices.Index(fields, unknownField(out))
		if unknown <= 0 || unknown == len(fields)-1 { // Without index and name nothing can be told.
			return program, nil, fmt.Errorf("nvidia-smi: %s", saidLine(out, err))
		}
		fields = slices.Delete(fields, unknown, unknown+1)
	}
}

// `Field "mig.mode.current" is not a valid field to query.`
var notAField = regexp.MustCompile(`Field "([a-z_.]{1,40})" is not a valid field`)

func unknownField(out string) string {
	if m := notAField.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// parseNvidia reads the answer to --query-gpu. Lines that are none of it, such
// as warnings, are passed over.
func parseNvidia(out string, fields []string) []card {
	var cards []card
	for line := range strings.Lines(out) {
		values := strings.SplitN(strings.TrimSpace(line), ",", len(fields))
		if len(values) != len(fields) {
			continue
		}
		c := card{maker: nvidia, index: -1}
		var hasUsed, hasFree bool
		for i, field := range fields {
			v := strings.TrimSpace(values[i])
			switch field {
			case fieldIndex:
				if n, err := strconv.Atoi(v); err == nil && n >= 0 && n < math.MaxInt16 {
					c.index = n
				}
			case fieldUUID:
				if strings.HasPrefix(v, "GPU-") {
					c.uuid = v
				}
			case fieldMIG:
				c.divided = v == "Enabled"
			case fieldTotal:
				var known bool
				c.total, known = mebibytes(v)
				if c.unified = unsupported(v); !known && !c.unified {
					c.trouble = strings.Trim(v, "[]")
				}
			case fieldUsed:
				c.used, hasUsed = mebibytes(v)
			case fieldFree:
				c.free, hasFree = mebibytes(v)
			case fieldName:
				c.name = v
			}
		}
		known := func(i card) bool { return i.index == c.index }
		if c.index < 0 || c.name == "" || slices.ContainsFunc(cards, known) {
			continue
		}
		if !hasFree {
			c.free = c.total - min(c.total, c.used)
		}
		c.used, c.free = min(c.used, c.total), min(c.free, c.total)
		if c.inUse = hasUsed && c.total > 0; !c.inUse {
			c.used, c.free = 0, 0
		}
		if cards = append(cards, c); len(cards) == maxCards {
			break
		}
	}
	return cards
}

// askNvidiaProcesses asks what holds memory. Where that cannot be told there is
// nothing.
func askNvidiaProcesses(ctx context.Context, ask Ask, program string) []process {
	out, err := ask(ctx, program, "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
	if err != nil {
		return nil
	}
	return parseNvidiaProcesses(out)
}

func parseNvidiaProcesses(out string) []process {
	const most = 4096
	var list []process
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), ",")
		if len(f) != 3 {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(f[1]))
		uuid := strings.TrimSpace(f[0])
		if err != nil || pid <= 0 || !strings.HasPrefix(uuid, "GPU-") {
			continue
		}
		p := process{uuid: uuid, pid: pid}
		p.bytes, p.known = mebibytes(strings.TrimSpace(f[2]))
		if list = append(list, p); len(list) == most {
			break
		}
	}
	return list
}

// mebibytes reads a figure in MiB, with or without its unit. What no machine has
// is not known.
func mebibytes(text string) (bytes uint64, ok bool) {
	const most = 1 << 30 // MiB: a PiB
	n, err := strconv.ParseUint(strings.TrimSuffix(text, " MiB"), 10, 64)
	if err != nil || n > most {
		return 0, false
	}
	return n << 20, true
}

// unsupported: nvidia-smi says so of the memory of GPUs that have none of their
// own, such as Jetson's and GB10's. Other words in brackets tell of trouble.
func unsupported(text string) bool {
	switch strings.ToLower(strings.Trim(text, "[]")) {
	case "n/a", "not supported":
		return true
	}
	return false
}
