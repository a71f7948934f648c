package scheduler

import (
	"testing"
	"time"
)

// TestACordonedPeerKeepsItsModel: also where it restarts while others are up, and
// where the leader changes while its engine waits to be started again.
func TestACordonedPeerKeepsItsModel(t *testing.T) {
	t.Run("it restarts", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, c *cluster) {
			order := c.byRank(uidOf("m"))
			on := order[1]
			c.addModel("m", 1<<30, on)
			c.pass(10 * time.Second)
			c.want("ready", order[0].ready("m"), []string{on.name})
			c.say(on, said{cordoned: true})
			c.pass(5 * time.Second)
			on.crash()
			c.pass(30 * time.Second)
			on.engine = &fakeEngine{}
			on.open()
			on.start()
			c.pass(10 * time.Minute)
			c.want("ready after its restart", order[0].ready("m"), []string{on.name})
		})
	})
	t.Run("the leader changes", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, c *cluster) {
			order := c.byRank(uidOf("m"))
			leader, on := order[0], order[1]
			c.alone(on)
			c.addModel("m", 1<<30, on)
			c.pass(40 * time.Second)
			c.say(on, said{cordoned: true})
			c.pass(5 * time.Second)
			for range 3 {
				on.engine.killAll()
				c.pass(20 * time.Second)
			}
			on.engine.killAll()
			c.pass(2 * time.Second)
			leader.crash()
			c.pass(20 * time.Minute)
			c.want("ready under the new leader", order[2].ready("m"), []string{on.name})
		})
	})
}

// TestADrainedPeerServesWhileAnotherLoads: for longer than it would otherwise.
func TestADrainedPeerServesWhileAnotherLoads(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0], c.peers[1])
		c.pass(10 * time.Second)
		on, other := c.serving("m", c.peers[0], c.peers[1])
		other.engine.load = moveTime + 2*time.Minute
		c.say(on, said{draining: true})
		c.pass(moveTime + time.Minute)
		c.want("ready while the other one loads", c.peers[2].ready("m"), []string{on.name})
		c.pass(3 * time.Minute)
		c.want("ready then", c.peers[2].ready("m"), []string{other.name})
	})
}
