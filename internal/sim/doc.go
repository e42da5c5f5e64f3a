// Package sim simulates histories of a pool of machines at the level of package cloud, in
// virtual time, without an API server. One seed is one history: a cloud that lags, fails, loses
// answers and hears requests twice, machines that never join, attest or stop, pods that come
// and go, and a process that is killed in the middle of a pass.
//
// The whole node pool operator runs in reconcile/simtest, where a history takes seconds. One
// here takes 60 ms, so that 10,000 are simulated in ten minutes, and defects are planted between
// the parts of package cloud, which a whole program has no places for. What these histories
// find is rare: seed 1809 of 2,000 was the last.
package sim
