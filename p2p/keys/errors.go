package keys

type failure struct{ reason, text string }

func (f *failure) Error() string  { return f.text }
func (f *failure) Reason() string { return f.reason }

// fault makes a sentinel error that carries its reason for other packages.
func fault(reason, text string) error { return &failure{reason, text} }

var (
	// ErrUnknown: no key has this secret, or none has it any more.
	ErrUnknown = fault("invalid_api_key", "the key is unknown or was taken back; an admin can list keys and make one (relay key ls, relay key add)")
	// ErrExpired: the secret is right, and the key's time is over.
	ErrExpired = fault("invalid_api_key", "the key has expired; an admin can make another one (relay key add)")
	// ErrReplaced: the secret is that from before a rotation, and its time is over.
	ErrReplaced = fault("invalid_api_key", "the key's secret was replaced by a new one; ask for that (relay key rotate)")
)
