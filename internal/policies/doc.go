// Package policies has no code: its tests ask an evaluator of NetworkPolicies, cyclonus, who reaches whom under
// the policies that the programs render, as their golden files have them. It is a module of its own for
// what the evaluator requires. Policies of Cilium are not evaluated.
package policies
