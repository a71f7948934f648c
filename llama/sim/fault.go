package sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// FaultKind is a way of going wrong.
type FaultKind string

const (
	// FaultRefuse answers 503 "Loading model", as an engine that is not up yet.
	FaultRefuse FaultKind = "refuse"
	// FaultDrop cuts the connection before any byte of the answer.
	FaultDrop FaultKind = "drop"
	// FaultError answers 500 before any token, or ends a stream with an error's
	// event after After tokens.
	FaultError FaultKind = "error"
	// FaultStall stops producing after After tokens and keeps the connection.
	FaultStall FaultKind = "stall"
	// FaultDie cuts the connection after After tokens.
	FaultDie FaultKind = "die"
	// FaultWrong sends bytes that are no event, or no JSON, after After tokens.
	FaultWrong FaultKind = "wrong"
	// FaultEnd ends the answer cleanly after After tokens, without its last
	// event and without [DONE].
	FaultEnd FaultKind = "end"
)

// Fault is one way of going wrong, for completion requests only.
type Fault struct {
	Kind FaultKind
	// After is the number of tokens that come out first. Where that is all of them, it
	// strikes before the answer's last event.
	After int
	// Times is how many requests it strikes before it is used up; 0 means all.
	Times int
}

// ParseFault reads "kind[:after][*times]": "die:5" cuts every answer after five
// tokens, "refuse*2" refuses two requests.
func ParseFault(s string) (Fault, error) {
	var f Fault
	rest, times, repeated := strings.Cut(s, "*")
	kind, after, counted := strings.Cut(rest, ":")
	f.Kind = FaultKind(kind)
	var err error
	if counted {
		if f.After, err = strconv.Atoi(after); err != nil {
			return Fault{}, fmt.Errorf("fault %q: %q is not a number of tokens", s, after)
		}
	}
	if repeated {
		if f.Times, err = strconv.Atoi(times); err != nil || f.Times < 1 {
			return Fault{}, fmt.Errorf("fault %q: %q is not a number of requests", s, times)
		}
	}
	return f, f.Validate()
}

// String is what ParseFault reads.
func (f Fault) String() string {
	s := string(f.Kind)
	if f.After > 0 {
		s += ":" + strconv.Itoa(f.After)
	}
	if f.Times > 0 {
		s += "*" + strconv.Itoa(f.Times)
	}
	return s
}

// MarshalJSON writes the form that ParseFault reads.
func (f Fault) MarshalJSON() ([]byte, error) { return json.Marshal(f.String()) }

// UnmarshalJSON reads that form.
func (f *Fault) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a fault is a string such as %q", "die:5")
	}
	parsed, err := ParseFault(s)
	if err != nil {
		return err
	}
	*f = parsed
	return nil
}

// Validate says what is wrong with a fault.
func (f Fault) Validate() error {
	switch f.Kind {
	case FaultRefuse, FaultDrop:
		if f.After != 0 {
			return fmt.Errorf("fault %q comes before the first token: leave the :%d out", f.Kind, f.After)
		}
	case FaultError, FaultStall, FaultDie, FaultWrong, FaultEnd:
		if f.After < 0 {
			return fmt.Errorf("fault %q: %d tokens is less than none", f.Kind, f.After)
		}
	default:
		return fmt.Errorf("fault %q is none of refuse, drop, error, stall, die, wrong, end", f.Kind)
	}
	if f.Times < 0 {
		return fmt.Errorf("fault %q: %d requests is less than none", f.Kind, f.Times)
	}
	return nil
}
