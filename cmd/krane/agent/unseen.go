package agent

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// slowView is how long it may take until a kind is seen, before a person has to know.
const slowView = 20 * time.Second

// unseen returns a function that reports the kinds without a complete view: a kind that the cluster does not serve, or that
// the agent may not read, with the remedy, and any other kind after slowView. The function is not safe for concurrent
// use. Until all kinds are synced, the agent applies and deletes nothing.
func (ps parts) unseen() func() []*ctrlv1.Problem {
	var since map[string]time.Time // by kind
	return func() (list []*ctrlv1.Problem) {
		before := since
		since = map[string]time.Time{}
		for _, c := range components() {
			joined, _ := ps[c].synced().(interface{ Unwrap() []error })
			if joined == nil {
				continue
			}
			for _, err := range joined.Unwrap() {
				kind, why, _ := strings.Cut(err.Error(), ": ")
				if _, again := since[kind]; again {
					continue // of another component
				}
				since[kind] = cmp.Or(before[kind], time.Now())
				message := missing(kind, err)
				if message == "" && time.Since(since[kind]) >= slowView {
					message = "its objects are not seen, and what is reported of them is what was so before" + meanwhile + ": " + why
				}
				if message != "" {
					list = append(list, &ctrlv1.Problem{Resource: kind, Message: bounded(message, maxProblemMessage)})
				}
			}
		}
		return list
	}
}

const meanwhile = "; until then nothing is applied and nothing is deleted"

// missing returns why a kind cannot be seen, and what to do; empty if the agent only has to wait.
func missing(kind string, err error) string {
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
