// Package policy has no code: its tests hold the repository to the rules that neither the
// compiler nor the linter checks.
package policy
