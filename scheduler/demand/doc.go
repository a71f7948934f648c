// Package demand decides how many replicas of a model are wanted now.
//
// It promises: what somebody said, a minimum, a maximum or a pin, holds; what
// nobody said anything about runs once while it is awake, and sleeps, once it was
// unloaded, until it is asked for; load adds and takes away one replica at a
// time, and none while one that is wanted is not ready yet.
//
// It is pure: the time is told to it. Where replicas go is not its business.
package demand
