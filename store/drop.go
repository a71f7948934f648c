package store

import "fmt"

// Drop deletes everything in the space for good: it is not only marked as
// deleted, its bytes are gone from the database's files when this returns.
// Nothing else may be written meanwhile.
func (s *Space) Drop() error {
	leave, err := s.db.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := s.db.badger.DropPrefix(s.prefix); err != nil {
		return fmt.Errorf("erasing a part of the database in %s: %w", s.db.dir, err)
	}
	return nil
}
