package api

// account notes a request of a client that is over.
func (d *Door) account(c *call) {}
