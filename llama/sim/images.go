package sim

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// ImageTokens is what an image takes of the context, in tokens, whatever its size.
const ImageTokens = 64

// imageData is the image that an URL has in it. Others the real engine would
// fetch; the stand-in says what the real one says where it cannot.
func imageData(url string) ([]byte, error) {
	switch {
	case strings.HasPrefix(url, "http"):
		return nil, fail("error: cannot make GET request")
	case strings.HasPrefix(url, "file://"):
		return nil, refuse("file:// URLs are not allowed unless --media-path is specified")
	case !strings.HasPrefix(url, "data:"):
		data, err := base64.StdEncoding.DecodeString(url)
		if err != nil || len(data) == 0 {
			return nil, fail("Invalid base64 value")
		}
		return loaded(data)
	}
	head, body, ok := strings.Cut(url, ",")
	switch {
	case !ok || strings.Contains(body, ","):
		return nil, refuse("Invalid uri-encoded base64 value")
	case !strings.HasPrefix(head, "data:image/") && !strings.HasPrefix(head, "data:video/") && !strings.HasPrefix(head, "data:audio/"):
		return nil, refuse("Invalid uri format: %s", head)
	case !strings.HasSuffix(head, "base64"):
		return nil, refuse("uri must be base64 encoded")
	}
	data, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		data = nil
	}
	return loaded(data)
}

func loaded(data []byte) ([]byte, error) {
	if !strings.HasPrefix(http.DetectContentType(data), "image/") {
		return nil, refuse("Failed to load image or audio file")
	}
	return data, nil
}

// imageIDs stand for an image: other bytes, other ids.
func imageIDs(data []byte) []int {
	c := newChain(uint64(len(data)))
	for _, b := range data {
		c = c.add(int(b))
	}
	ids := make([]int, ImageTokens)
	for i := range ids {
		ids[i] = c.next(true)
		c = c.add(ids[i])
	}
	return ids
}

// ids are the tokens of a prompt in which media stands for each image.
func (p prompt) ids(media string) []int {
	if len(p.images) == 0 {
		return Tokenize(p.text, true, true)
	}
	var ids []int
	for i, text := range strings.SplitN(p.text, media, len(p.images)+1) {
		if i > 0 {
			ids = append(ids, imageIDs(p.images[i-1])...)
		}
		ids = append(ids, Tokenize(text, i == 0, true)...)
	}
	return ids
}
