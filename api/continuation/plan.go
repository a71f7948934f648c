package continuation

// Ways of going on.
const (
	ByIDs  = "ids"  // from the tokens themselves, or with nothing delivered: from the request
	ByText = "text" // from their text: valid, but not what the first engine would have said
)

// Plan is one try to go on. It belongs to one replica: at the next one, or another try, the
// Track is asked for a new one.
type Plan struct{}

// Ask is one request to the engine that goes on.
type Ask struct {
	Path string // one of the engine's routes: /apply-template, /tokenize, or a completion's
	Body []byte // JSON, with the model's name as it was in the first engine's body
	// Stream says that this is the last request: its answer is the stream that a Seam reads.
	// The answers to those before it are whole, and go to Answer.
	Stream bool
}

// Next is what the engine is asked now; it says the same until Answer was called. It must not
// be called where there is an Ending.
func (p *Plan) Next() Ask { return Ask{Stream: true} }

// Answer takes the engine's whole answer to a request that is not the last. An answer that
// cannot be read leads to another way, where there is one; the error is a *Cannot.
func (p *Plan) Answer(body []byte) error { return nil }

// By is how the answer is gone on with, ByIDs or ByText. It may change with Answer, until
// Next is the last request.
func (p *Plan) By() string { return ByIDs }

// Ending are the chunks that are left of an answer that needs no engine any more: it had all
// its tokens, or its finish was delivered and its usage was not. They are as a Seam's. nil
// where an engine has to be asked.
func (p *Plan) Ending() [][]byte { return nil }

// Full are the chunks that end the answer when the engine that is to go on refuses the last
// request because the context is full: there the first engine would have ended it by length.
func (p *Plan) Full() [][]byte { return nil }

// Seam turns what the engine answers to the last request into what the first engine would
// have sent.
func (p *Plan) Seam() *Seam { return &Seam{} }
