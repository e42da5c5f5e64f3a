package write_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
)

func TestOnlyAnAnswerThatNamesTheObjectMakesItGone(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"it does not exist":       {apierrors.NewNotFound(resource, "w"), true},
		"wrapped":                 {fmt.Errorf("delete: %w", apierrors.NewNotFound(resource, "w")), true},
		"the path is not served":  {apierrors.NewGenericServerResponse(http.StatusNotFound, "DELETE", resource, "w", "404 page not found", 0, true), false},
		"something is not found":  {apierrors.NewNotFound(resource, ""), false},
		"it is another one":       {apierrors.NewConflict(resource, "w", errors.New("uid")), false},
		"the connection was lost": {errors.New("not found"), false},
		"nothing":                 {nil, false},
	} {
		require.Equal(t, test.want, write.Gone(test.err), name)
	}
}
