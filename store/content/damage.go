package content

// damaged says what reading a file has shown.
const damaged = "its bytes are others, though its size and time are the same; the disk may be failing"

// noteDamage notes that a registered file, which still has its stamp, has a leaf
// at offset that is not what was hashed. From then on the file does not count as
// intact, also after a restart, until it is added again or replaced.
func (s *Store) noteDamage(f *file, offset int64) {
	s.tables.Lock()
	defer s.tables.Unlock()
	now := s.fileByID(f.ID)
	if now == nil || now.Path != f.Path || now.Stamp != f.Stamp || now.Damaged {
		return
	}
	bad := *now
	bad.Damaged = true
	s.log.Error("a file is damaged: "+damaged, "path", f.Path, "offset", offset)
	if err := s.saveFile(&bad); err != nil {
		s.setFile(&bad) // at least until the next start
		s.log.Warn("the damage of a file could not be noted", "path", f.Path, "error", err)
	}
}
