package content

import (
	"fmt"
	"os"
	"time"
)

// stamp is what tells cheaply whether a file is still the one that was hashed.
type stamp struct {
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // Unix nanoseconds
	Inode uint64 `json:"inode"` // 0 where the system has none to show
}

func stampOf(info os.FileInfo) stamp {
	return stamp{Size: info.Size(), MTime: info.ModTime().UnixNano(), Inode: inode(info)}
}

// difference says in words how a file differs from its stamp; empty when it
// does not.
func (s stamp) difference(now stamp) string {
	switch {
	case now.Size != s.Size:
		return fmt.Sprintf("it has %d bytes instead of %d", now.Size, s.Size)
	case now.MTime != s.MTime:
		return "it was written at " + time.Unix(0, now.MTime).Format(time.DateTime)
	case now.Inode != s.Inode:
		return "another file took its place"
	}
	return ""
}
