package application

import (
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/outside"
)

// authPart is a realm. None is made yet: an Application that wants one waits, and its
// condition says so.
func (p *pass) authPart() *part {
	t := &part{name: "auth", condition: v1alpha1.ConditionAuth, enabled: p.app.Spec.Auth.Enabled, gate: p.gates.auth}
	if t.enabled {
		t.err = fmt.Errorf("auth: %w: this version makes no realms; set spec.auth.enabled to false", outside.ErrUnset)
	}
	return t
}
