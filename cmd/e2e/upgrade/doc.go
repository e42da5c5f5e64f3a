// Package upgrade has no code: its tests run replicas of several versions of the control plane
// side by side.
package upgrade
