package continuation

// Piece is what one chunk of a streamed completion says, as far as it counts here. It is
// read into again and again, and holds parts of the chunk it was read from.
type Piece struct {
	data []byte
}

// Read reads a chunk, a JSON object that is neither [DONE] nor null, into p, whatever was
// there before; data must stay as it is until p is read into again. The error is chat.ErrChunk.
func (p *Piece) Read(data []byte) error {
	p.data = data
	return nil
}

// Finished says that the answer ends with this chunk, but for its usage.
func (p *Piece) Finished() bool { return false }
