package demand

// PlacingOrder is the placements of Demand in the order in which they were
// found: one in which the scheduler could place the pods.
func PlacingOrder(in Input) []PlacedPod {
	p := pack(&in)
	var all []PlacedPod
	for _, pod := range p.order {
		all = append(all, p.placement(p.model.pods[pod], &p.bins[p.at[pod]]))
	}
	return all
}
