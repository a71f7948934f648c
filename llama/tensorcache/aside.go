package tensorcache

import (
	"errors"
	"os"
)

// An aside is a file that is being written, and not yet under its name.
type aside struct{ *os.File }

func (c *Cache) aside() (aside, error) {
	f, err := os.CreateTemp(c.path(asideFolder, ""), "*")
	return aside{f}, err
}

// finish makes what was written last, or deletes it where err is not nil.
func (f aside) finish(err error) error {
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		f.delete()
	}
	return err
}

// delete deletes it; where that fails, the next Open does.
func (f aside) delete() { _ = os.Remove(f.Name()) }

// place gives a finished file its name, or deletes it.
func (c *Cache) place(f aside, folder, name string) error {
	if err := os.Rename(f.Name(), c.path(folder, name)); err != nil {
		f.delete()
		return err
	}
	if !foldersSync {
		return nil
	}
	d, err := os.Open(c.path(folder, ""))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
