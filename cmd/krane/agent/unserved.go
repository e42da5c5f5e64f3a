package agent

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// unserved returns the kinds that the cluster does not serve, or not to the agent, each with what to do. Until
// all are seen, the agent applies and deletes nothing, which a person has to know.
func (ps parts) unserved() (list []*ctrlv1.Problem) {
	said := map[string]bool{}
	for _, c := range components() {
		joined, _ := ps[c].synced().(interface{ Unwrap() []error }) //nolint:errorlint // one error for each kind
		if joined == nil {
			continue
		}
		for _, err := range joined.Unwrap() {
			kind, _, _ := strings.Cut(err.Error(), ": ")
			message := missing(kind, err)
			if message == "" || said[kind] {
				continue
			}
			said[kind] = true
			list = append(list, &ctrlv1.Problem{Resource: kind, Message: message})
		}
	}
	return list
}

// missing returns why a kind cannot be seen, and what to do; empty if the agent only has to wait.
func missing(kind string, err error) string {
	const meanwhile = "; until then nothing is applied and nothing is deleted"
	switch {
	case apierrors.IsForbidden(err):
		return "the agent may not see the objects of this kind: apply what krane manifests prints" + meanwhile
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		what := "the definitions of this kind"
		if strings.HasSuffix(kind, ".cilium.io") {
			what = "Cilium, or at least its definitions"
		}
		return fmt.Sprintf("the cluster does not serve this kind: install %s%s", what, meanwhile)
	default:
		return ""
	}
}
