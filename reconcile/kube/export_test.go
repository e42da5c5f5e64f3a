package kube

// ReferenceNodes returns how many objects the graph of references holds.
func (c *Controller[T]) ReferenceNodes() int {
	c.caches.mu.RLock()
	defer c.caches.mu.RUnlock()
	count := 0
	for _, kind := range c.caches.graph.kinds {
		count += len(kind.nodes)
	}
	return count
}
