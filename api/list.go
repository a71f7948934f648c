package api

// each calls f for the elements of a valid JSON list, as they stand there, until it says
// that it has seen enough. Nothing is built of them.
func each(list []byte, f func(v []byte) (more bool)) {
	s := scanner{b: list}
	if !s.take('[') || s.take(']') {
		return
	}
	for {
		s.space()
		start := s.i
		if s.value(0, placeOther) != nil || !f(list[start:s.i]) || !s.take(',') {
			return
		}
	}
}
