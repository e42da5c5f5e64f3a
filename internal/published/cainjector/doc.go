// Package cainjector puts the cainjector of cert-manager 1.21.2, unmodified, into the
// simulated world of package simtest: a Manager of controller-runtime, as kubebuilder lays
// one out. It is a module of its own, whose dependencies differ from those of
// internal/published.
package cainjector
