package main

import (
	"os"
	"strings"

	"rsc.io/qr"
)

// quietZone is the white around a QR code, in modules; readers want four.
const quietZone = 4

// qrCode draws a text as a QR code of half blocks, two modules a character. Where
// colours may be used it is black on white whatever the terminal's own are;
// elsewhere it is as light text on a dark ground shows it. A text of capitals,
// digits and few signs makes a smaller code than others.
func qrCode(text string, colours bool) (string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return "", err
	}
	light := func(x, y int) bool { return !code.Black(x-quietZone, y-quietZone) } // Outside it is white.
	size := code.Size + 2*quietZone
	var b strings.Builder
	for y := 0; y < size; y += 2 {
		if colours {
			b.WriteString("\x1b[38;5;231m\x1b[48;5;16m")
		}
		for x := range size {
			switch upper, lower := light(x, y), y+1 >= size || light(x, y+1); {
			case upper && lower:
				b.WriteString("█")
			case upper:
				b.WriteString("▀")
			case lower:
				b.WriteString("▄")
			default:
				b.WriteString(" ")
			}
		}
		if colours {
			b.WriteString("\x1b[0m")
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// colours says whether what is written to a terminal may have them.
func colours(terminal bool) bool { return terminal && os.Getenv("NO_COLOR") == "" }
