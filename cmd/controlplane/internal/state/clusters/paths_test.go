package clusters //nolint:testpackage // what a path names is read inside

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWrongPathNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const right = "0193a5d4-0000-7000-8000-000000000001"
	for name, c := range map[string]struct{ project, group, wrong string }{
		"right":           {project: right, group: right},
		"a wrong project": {project: "p", group: right, wrong: "project_id"},
		"a wrong group":   {project: right, group: "g", wrong: "_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.SetPathValue("project_id", c.project)
			r.SetPathValue("var_group_id", c.group)
			r.SetPathValue("service_id", c.group)
			group, err := groupPath(r)
			_, failed := servicePath(r)
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				require.ErrorContains(t, failed, c.wrong)
				return
			}
			require.NoError(t, err)
			require.NoError(t, failed)
			require.Equal(t, groupID{right, right}, group)
		})
	}
}
