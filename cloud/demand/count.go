//trueup:pure

package demand

// counter is the state of a tally: how many of its pods are in each domain.
type counter struct {
	in     []int32 // by domain; noCount if there is no such domain
	total  int32
	placed []bool // domains where a pod with the constraint was placed
	// For spreading: the number of domains, the min pods of one, and the number of
	// domains by pods.
	domains, min int32
	having       []int32
}

const noCount = -1

// count is how many pods are in a domain, which may be absent or a new one.
func (c *counter) count(domain int32) int32 {
	if domain < 0 || int(domain) >= len(c.in) || c.in[domain] == noCount {
		return 0
	}
	return c.in[domain]
}

func (c *counter) has(domain int32) bool {
	return domain >= 0 && int(domain) < len(c.in) && c.in[domain] != noCount
}

// ensure adds a domain without pods, unless it exists.
func (c *counter) ensure(domain int32) {
	for int(domain) >= len(c.in) {
		c.in = append(c.in, noCount)
	}
	if c.in[domain] != noCount {
		return
	}
	c.in[domain] = 0
	c.domains++
	c.min = 0
	c.have(0)
}

// drop removes a domain without pods.
func (c *counter) drop(domain int32) {
	c.in[domain] = noCount
	c.having[0]--
	if c.domains--; c.domains == 0 {
		c.min = 0
	}
	for c.domains > 0 && c.having[c.min] == 0 {
		c.min++
	}
}

// add counts n more pods in an existing domain.
func (c *counter) add(domain, n int32) {
	c.total += n
	was := c.in[domain]
	c.in[domain] += n
	c.having[was]--
	c.have(c.in[domain])
	for c.having[c.min] == 0 {
		c.min++
	}
}

// have records that one more domain has a number of pods.
func (c *counter) have(pods int32) {
	for int(pods) >= len(c.having) {
		c.having = append(c.having, 0)
	}
	c.having[pods]++
}

// minWith is the number of pods from which skew is measured, once domain exists.
func (c *counter) minWith(s *Spread, domain, own int32) int32 {
	domains, least := c.domains, c.min
	if !c.has(domain) {
		domains++
		least = own
		if domains > 1 {
			least = min(own, c.min)
		}
	}
	if domains < s.MinDomains {
		return 0
	}
	return least
}

// minPods is the number of pods from which skew is measured.
func (c *counter) minPods(s *Spread) int32 {
	if c.domains < s.MinDomains {
		return 0
	}
	return c.min
}

func (c *counter) mark(domain int32) {
	for int(domain) >= len(c.placed) {
		c.placed = append(c.placed, false)
	}
	c.placed[domain] = true
}

// skewed reports whether a domain where a pod with the constraint was placed
// has more pods than s allows.
func (c *counter) skewed(s *Spread) bool {
	for domain, placed := range c.placed {
		if placed && c.count(int32(domain))-c.minPods(s) > max(s.MaxSkew, 1) { //nolint:gosec // fewer domains than that
			return true
		}
	}
	return false
}

// eligible reports whether the pods of s count for t, a spreading tally.
func (m *model) eligible(t *tally, s *site) bool {
	for _, k := range t.keys {
		if s.domains[k] == noDomain {
			return false
		}
	}
	seen := m.seen(t.pod, &t.seen, s)
	return (t.spread.IgnoreNodeAffinity || seen&affinityBit != 0) && (!t.spread.HonorTaints || seen&toleratesBit != 0)
}
