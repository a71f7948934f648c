package chat

import "fmt"

// FieldError is why a request is not taken: one field of it, and a sentence
// that says what to do.
type FieldError struct {
	// Param is the field's path in the client's own words, such as
	// input[2].content[0].image_url; "" where it is the whole body.
	Param   string
	Message string
}

func (e *FieldError) Error() string { return e.Message }

func fieldError(param, format string, args ...any) *FieldError {
	return &FieldError{Param: param, Message: fmt.Sprintf(format, args...)}
}
