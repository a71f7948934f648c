package store

import (
	"fmt"
	"log/slog"
	"strings"
)

// badgerLog passes on what badger warns of. Its own chatter about compactions
// and replays is of no use to the owner of the machine.
type badgerLog struct{ log *slog.Logger }

func (b badgerLog) Errorf(format string, args ...any)   { b.log.Error(line(format, args)) }
func (b badgerLog) Warningf(format string, args ...any) { b.log.Warn(line(format, args)) }
func (b badgerLog) Infof(string, ...any)                {}
func (b badgerLog) Debugf(string, ...any)               {}

func line(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}
