package chat

import (
	"errors"
	"testing"
)

func TestTokensAreCounted(t *testing.T) {
	b, err := TokenizeBody("m", []byte(`{"prompt":"<s>\"hi\""}`))
	if want := `{"model":"m","content":"<s>\"hi\"","add_special":true,"parse_special":true}`; err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	if n, err := CountTokens([]byte(`{"tokens":[1,50,60]}`)); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"tokens":"7"}`, `{"prompt":[]}`} {
		if n, err := CountTokens([]byte(bad)); !errors.Is(err, ErrCount) {
			t.Errorf("%s: %d, %v", bad, n, err)
		}
		if b, err := TokenizeBody("m", []byte(bad)); !errors.Is(err, ErrCount) {
			t.Errorf("%s: %s, %v", bad, b, err)
		}
	}
}
