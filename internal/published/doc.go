// Package published puts controllers of other projects, unmodified, into the
// simulated world of package simtest: five of kube-controller-manager 1.36.3, each with
// its own clients and informers. Its tests expect the defects that upstream has
// on record of them, and nothing else.
package published
