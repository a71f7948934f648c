// Package lab makes small networks out of Linux network namespaces, for tests
// and figures that need cut cables, slow links and routers: every machine is a
// namespace whose one cable leads to a switch in a namespace of its own. Nothing
// in a lab is attached to the host's interfaces or has a way out; that is
// checked for each machine before anything can be started on it.
package lab
