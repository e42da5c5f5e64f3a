// Package sim simulates whole histories of what the SDK is for, in virtual time:
// the world around a program, everything that goes wrong in it, and what must
// never be. One seed is one history.
//
// [Pool] is a pool of machines: a cloud that lags, fails, loses answers and hears
// requests twice, machines that never join, attest or stop, pods that come and
// go, and a process that is killed in the middle of a pass.
package sim
