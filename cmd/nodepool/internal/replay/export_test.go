package replay

// Diligently replays with a pass at each event, also where nothing has changed.
func Diligently(s Settings, pods []Pod) (Result, error) {
	sim, err := newSimulation(s.withDefaults(), pods)
	if err != nil {
		return Result{}, err
	}
	sim.diligent = true
	return sim.run()
}
