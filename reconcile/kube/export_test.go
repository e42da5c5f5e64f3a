package kube

// ReferenceNodes returns how many objects the graph of references holds.
func (c *Controller[T]) ReferenceNodes() int {
	c.mirror.mu.RLock()
	defer c.mirror.mu.RUnlock()
	count := 0
	for _, kind := range c.mirror.graph.kinds {
		count += len(kind.nodes)
	}
	return count
}
