package keys

// Grant is what a secret that opened the door may do. The zero limits are no limits.
type Grant struct {
	// ID is the key's id, or LocalID; Name is what people call it.
	ID, Name string
	// Models are the names of the models that it may use; nil is all.
	Models []string
	// RequestsPerMinute, TokensPerDay and Concurrency are for the whole mesh, however
	// many peers are asked.
	RequestsPerMinute int
	TokensPerDay      int64
	Concurrency       int
	// Batch says that its requests give way to those of other keys.
	Batch bool
}

// May says whether the key may use the model of that name.
func (g Grant) May(model string) bool {
	if g.Models == nil {
		return true
	}
	for _, m := range g.Models {
		if m == model {
			return true
		}
	}
	return false
}
