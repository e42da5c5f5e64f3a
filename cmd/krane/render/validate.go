package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// maxSecret is the max number of bytes that the server takes in a Secret.
const maxSecret = 1 << 20

// validateDeployment returns the health check, nil for none.
func (c Cell) validateDeployment(d *ctrlv1.ApplyDeployment, variables map[string]string) (*specs.Healthcheck, error) {
	var p specs.Errors
	check := p.Deployment(d)
	if d.GetRegion() != "" && d.GetRegion() != c.Region {
		p.Add("region", d.GetRegion(), "this agent's, "+c.Region)
	}
	if level, err := isolation.ParseLevel(d.GetPodSecurity()); err == nil && !c.podSecurity().Allows(level) {
		p.Add("pod_security", d.GetPodSecurity(), "what the region allows: "+string(c.podSecurity()))
	}
	validateVariables(&p, d, variables)
	return check, p.Err()
}

func validateVariables(p *specs.Errors, d *ctrlv1.ApplyDeployment, variables map[string]string) {
	if len(d.GetEncryptedEnvironmentVariables()) > 0 && variables == nil {
		p.Add("encrypted_environment_variables", "not decrypted", "the variables, before anything is applied")
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		size += len(name) + len(variables[name])
		if len(validation.IsConfigMapKey(name)) > 0 {
			p.Add("encrypted_environment_variables", name, "names of letters, digits, -, _ and .")
		} else if strings.ContainsRune(variables[name], 0) {
			p.Add("encrypted_environment_variables", name, "a value without a zero byte")
		}
	}
	if size > maxSecret {
		p.Add("encrypted_environment_variables", fmt.Sprint(size, " bytes"), fmt.Sprint("at most ", maxSecret))
	}
}
