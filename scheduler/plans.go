package scheduler

// PlanState is every way in which a model could run, for people.
type PlanState struct {
	Model ModelState `json:"model"`
	// Text says where it runs or is to run and why, or why it runs nowhere.
	Text string       `json:"text"`
	Ways []PlannedWay `json:"ways"`
	// Refused are the peers that could not run it in any way, each with the reason.
	Refused []RefusedPeer `json:"refused"`
}

// PlannedWay is one way on one peer.
type PlannedWay struct {
	Peer string `json:"peer"`
	Name string `json:"name"`
	// Way is gpu, gpus, gpu+ram, shards or cpu.
	Way string `json:"way"`
	// Verdict is fits, evicts (idle models are unloaded for it), later (not while
	// what runs there now runs, or while the device is busy) or never.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Text    string `json:"text,omitempty"`
	Chosen  bool   `json:"chosen"`
	Runs    bool   `json:"runs"`
	// Memory is what it would take, by device.
	Memory []DeviceMemory `json:"memory"`
	// Prefill and Decode are the predicted tokens a second of one request; Guessed
	// says that the speed of a device is not known yet and that of its kind was taken.
	Prefill float64 `json:"prefill_tps"`
	Decode  float64 `json:"decode_tps"`
	Guessed bool    `json:"guessed"`
	// Measured is what it took and did when it last ran there that way.
	Measured *MeasuredWay `json:"measured,omitempty"`
	// Holds says that the peer has the file; else Fetch is how many seconds it would
	// take to fetch, by the rate of the peer's last pull; null where that is not known.
	Holds bool     `json:"holds"`
	Fetch *float64 `json:"fetch_s"`
}

// DeviceMemory is memory on one device, in bytes, and the layers that lie there,
// the output layer counted.
type DeviceMemory struct {
	Device string `json:"device"`
	Layers int    `json:"layers"`
	Bytes  uint64 `json:"bytes"`
}

// MeasuredWay is what the engine took and did, by its own figures.
type MeasuredWay struct {
	Memory  []DeviceMemory `json:"memory"`
	Prefill float64        `json:"prefill_tps"`
	Decode  float64        `json:"decode_tps"`
	LoadMS  int64          `json:"load_ms"`
}

// RefusedPeer is why a peer cannot run a model, in one sentence.
type RefusedPeer struct {
	Peer   string `json:"peer"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Plan says how a model could run, and predicts.
func (s *Scheduler) Plan(name string) (PlanState, error) {
	return PlanState{}, Errorf(Internal, "not yet")
}

// Workload is one of this peer's own replicas.
type Workload struct {
	UID   string `json:"uid"`
	State string `json:"state"`
	// InFlight are the requests that run there, Waiting those above its slots or
	// waiting for the cores.
	InFlight int `json:"inflight"`
	Waiting  int `json:"waiting"`
	// LastServed is the seconds since a request last ended; null if none has.
	LastServed *float64 `json:"last_served_s"`
	// Resident is the seconds since it was ready; null while it is not.
	Resident *float64 `json:"resident_s"`
}
