// Package replay replays a history of pods against the settings of a pool, so that a
// person chooses minStandby by looking: how many pods had room at once, how long the
// others waited, and what it cost, for each of several values.
//
// [ReadTrace] reads a history, [ReadManifest] the settings of a NodePool, [Settings.Sweep]
// replays the one against the other, and [Report] shows the results as a table, as JSON
// and as a picture.
//
// The replay decides nothing by itself: [demand.Place] says which machines pods need, and
// [cloud.Pool.Plan] what the pool does. It carries their actions out in virtual time, in
// one goroutine and without a clock: the same trace and settings give the same result.
//
// # What is modelled
//
//   - The pool begins with minStandby machines on standby.
//   - A launch takes Warmup until the machine is stopped and on standby, a start takes
//     Boot until its Node is ready. No launch and no start fails.
//   - A pod is bound to the emptiest Node with room, as the scheduler does by default, the
//     longest waiting pod first. It runs for its duration from then on.
//   - A machine that is over the runtime of the pool is drained: its pods wait again, for
//     the rest of their duration.
//   - A pass over the pool is made at each event, and every Interval.
//
// DaemonSets, zones, spot prices, priorities and affinities are not modelled.
package replay
