// Package local is a cloud on this machine: each of its machines is a process. It is for
// trying a pool on a laptop, for tests, and the example of a provider.
//
// A machine runs while its process, or a child that the process has left, holds its log,
// which it inherits as output and as descriptor 3. So no other process is ever taken for
// it, and a program that closes inherited files cannot be a machine. A process that ends by itself
// is a machine that has stopped itself. Processes go on when the program of the
// [Provider] ends; the next one finds them in its folder.
//
// The process has these variables: MACHINE_NAME, the id of the machine, a DNS label;
// MACHINE_PROVIDER_ID, the same as a Node has it; MACHINE_TYPE, the InstanceType;
// MACHINE_USER_DATA; and MACHINE_BOOT, which counts its starts from 1. What it does to join
// a cluster is its own business.
//
// The package needs flock, Setsid and /bin/sh: it builds on Linux, macOS and the BSDs.
package local
