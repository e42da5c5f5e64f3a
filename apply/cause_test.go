package apply_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

func TestEachErrorHasACause(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(resource, "web", errors.New("namespace shop is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	for _, c := range []struct {
		err     error
		reason  readiness.Reason
		outlook readiness.Outlook
	}{
		{fmt.Errorf("%w: by flux", apply.ErrNotOurs), "NotOurs", readiness.Lasting},
		{fmt.Errorf("%w by part u1", apply.ErrClaimed), "Claimed", readiness.Lasting},
		{&apply.LimitError{}, "DeletionHeld", readiness.Lasting},
		{&apply.ConflictError{}, "Conflict", readiness.Lasting},
		{&apply.FightError{}, "Conflict", readiness.Transient},
		{fmt.Errorf("%w by a policy", apply.ErrBlocked), "Blocked", readiness.Waiting},
		{apply.ErrNeeded, "Blocked", readiness.Waiting},
		{apply.ErrTerminating, "Terminating", readiness.Waiting},
		{terminating, "Terminating", readiness.Waiting},
		{apply.ErrNotSynced, "NotSynced", readiness.Transient},
		{apierrors.NewForbidden(resource, "web", errors.New("exceeded quota: small")), "Quota", readiness.Transient},
		{apierrors.NewForbidden(resource, "web", errors.New("no right")), "Forbidden", readiness.Lasting},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), "Invalid", readiness.Lasting},
		{apierrors.NewBadRequest("unknown field"), "Invalid", readiness.Lasting},
		{apierrors.NewRequestEntityTooLargeError("too large"), "Invalid", readiness.Lasting},
		{apierrors.NewConflict(resource, "web", errors.New("changed")), "Conflict", readiness.Transient},
		{apply.ErrStalePlan, "Conflict", readiness.Transient},
		{apierrors.NewGenericServerResponse(http.StatusBadGateway, "get", resource, "web", "", 0, true), "RequestFailed", readiness.Transient},
		{errors.New("connection refused"), "RequestFailed", readiness.Transient},
	} {
		require.Equal(t, readiness.Cause{Reason: c.reason, Outlook: c.outlook, Message: c.err.Error()}, apply.CauseOf(c.err))
		require.Equal(t, c.reason, apply.CauseOf(fmt.Errorf("Pod/shop/web: %w", c.err)).Reason, "wrapped")
	}
	require.Zero(t, apply.CauseOf(nil))
}
