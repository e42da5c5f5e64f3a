// Package ops has the alerts of the programs, for those who print them as objects of
// Kubernetes.
package ops

import (
	"embed"
	"path"
)

//go:embed prometheus/*.yaml
var files embed.FS

// Alerts returns the groups of alerting rules of a program, such as controlplane, as a rule
// file of Prometheus. Its comments end at the line "groups:". The error wraps
// [io/fs.ErrNotExist] for a program without alerts.
func Alerts(program string) (string, error) {
	text, err := files.ReadFile(path.Join("prometheus", program+".yaml"))
	return string(text), err
}
