package clusters_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
)

const (
	groupX     = "55555555-5555-4555-8555-555555555551"
	groupY     = "55555555-5555-4555-8555-555555555552"
	groupsPath = projectsPath + projectX + "/var-groups"
	groupPath  = groupsPath + "/" + groupX
	attachPath = servicePath + "/var-groups"

	groupBody = `{"name":"database","entries":[{"key":"USER","value":"shop","secret":false},{"key":"PASSWORD","value":"hunter2-canary"}]}`
)

// keys returns a ring with keys of these names, of which the first encrypts.
func keys(t *testing.T, names ...string) *keyring.Ring {
	t.Helper()
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintln(&text, name, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32])))
	}
	ring, err := keyring.Parse(text.String())
	require.NoError(t, err)
	return ring
}

func TestAVarGroupIsServedToTheAgentAndItsSecretsToNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	require.Equal(t, 201, w.admin("PUT", groupPath, groupBody).status)
	w.must("PUT", groupsPath+"/"+groupY, `{"name":"flags","environment":"production","entries":[{"key":"DEBUG","value":"","secret":false}]}`)
	w.must("PUT", attachPath, `{"var_groups":["`+groupY+`","`+groupX+`"]}`)

	state := w.pull(clusterA)
	values := map[string]string{"USER": "shop", "PASSWORD": "hunter2-canary"}
	require.Empty(t, cmp.Diff([]starbase.VarGroup{
		{VarGroupID: groupX, ProjectID: projectX, Entries: values, Checksum: w.checksum(groupX, `{"PASSWORD":"hunter2-canary","USER":"shop"}`)},
		{
			VarGroupID:  groupY,
			ProjectID:   projectX,
			Environment: "production",
			Entries:     map[string]string{"DEBUG": ""},
			Checksum:    w.checksum(groupY, `{"DEBUG":""}`),
		},
	}, state.VarGroups))
	for i := range state.VarGroups {
		require.Empty(t, state.VarGroups[i].Validate())
	}
	require.Equal(t, 2, state.Counts.VarGroups)
	require.Equal(
		t,
		[]starbase.ServiceVarGroup{{VarGroupID: groupY, AttachOrder: 0}, {VarGroupID: groupX, AttachOrder: 1}},
		state.Services[0].VarGroups,
	)
	require.Empty(t, w.pull(clusterB).VarGroups)

	shown := w.admin("GET", groupPath, "")
	require.Equal(t, 200, shown.status)
	require.JSONEq(t, `{"var_group_id":"`+groupX+`","project_id":"`+projectX+`","name":"database","checksum":"`+state.VarGroups[0].Checksum+`",
		"entries":[{"key":"PASSWORD","secret":true},{"key":"USER","value":"shop","secret":false}],
		"services":[{"environment":"production","service_id":"`+serviceX+`"}]}`, shown.body)
	require.JSONEq(t, `{"var_groups":["`+groupY+`","`+groupX+`"]}`, w.admin("GET", attachPath, "").body)
	list := w.admin("GET", groupsPath, "")
	require.Len(t, list.member("var_groups"), 2)

	for what, text := range map[string]string{
		"the group": shown.body, "the list": list.body, "the service": w.admin("GET", servicePath, "").body, "the cluster": w.admin("GET", clustersPath+"/"+clusterA, "").body,
		"the log": w.log.String(), "the database": w.everything(), "a format": fmt.Sprintf("%v %+v %#v %s", state.VarGroups, state, state.VarGroups[0], &state.VarGroups[0]),
	} {
		require.NotContains(t, text, "hunter2-canary", what)
	}
	require.NotContains(t, w.everything(), "shop\t", "what is no secret is encrypted as well")
}

// checksum returns the checksum of a group with that canonical form.
func (w *world) checksum(groupID, canonical string) string {
	w.t.Helper()
	sum, err := w.store.Keys.MAC(canonical, groupID)
	require.NoError(w.t, err)
	return "hmac-sha256:" + sum
}

// everything returns all that the tables of var groups have.
func (w *world) everything() string {
	w.t.Helper()
	var all strings.Builder
	require.NoError(w.t, w.store.Database.Read(w.t.Context(), func(tx *db.Tx) error {
		rows, err := tx.QueryContext(
			w.t.Context(),
			`SELECT g.name, g.checksum, e.name, e.key_id, e.sealed FROM var_groups g JOIN var_group_entries e ON e.var_group_id = g.id`,
		)
		list, err := db.Collect(rows, err, func(rows *sql.Rows, row *[5]string) error {
			return rows.Scan(&row[0], &row[1], &row[2], &row[3], &row[4])
		})
		for _, row := range list {
			fmt.Fprintln(&all, strings.Join(row[:], "\t")+"\t")
		}
		return err
	}))
	require.NotEmpty(w.t, all.String())
	return all.String()
}

func TestOnlyARealChangeOfVarGroupsRaisesTheGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	start := w.pull(clusterA).Generation
	for i, step := range []struct {
		method, path, body string
		raised             int64
	}{
		{"PUT", groupPath, groupBody, 1},
		{"PUT", groupPath, groupBody, 1},
		{"PUT", groupPath, `{"name":"database","entries":[{"key":"PASSWORD"},{"key":"USER","secret":false}]}`, 1}, // their values stay
		{"PUT", groupPath, `{"name":"database","entries":[{"key":"PASSWORD"},{"key":"USER"}]}`, 2},                // a secret now
		{"PUT", groupPath, `{"name":"db","entries":[{"key":"PASSWORD"},{"key":"USER"}]}`, 3},
		{"PUT", attachPath, `{"var_groups":["` + groupX + `"]}`, 4},
		{"PUT", attachPath, `{"var_groups":["` + groupX + `"]}`, 4},
		{"PUT", groupPath, `{"name":"db","environment":"production","entries":[{"key":"PASSWORD","value":"new"}]}`, 5},
		{"PUT", servicePath, serviceBody, 5},
		{"PUT", attachPath, `{"var_groups":[]}`, 6},
		{"DELETE", groupPath, "", 7},
	} {
		got := w.admin(step.method, step.path, step.body)
		require.Less(t, got.status, 300, "step %d: %s", i, got.body)
		require.Equal(t, start+step.raised, got.number("generation"), "step %d", i)
		require.Equal(t, start+step.raised, w.pull(clusterA).Generation, "step %d", i)
	}
	require.Empty(t, w.pull(clusterA).VarGroups)
}

func TestAVarGroupThatCannotBeIsRefusedByField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.must("PUT", groupPath, groupBody)
	w.must("PUT", attachPath, `{"var_groups":["`+groupX+`"]}`)
	w.must(
		"PUT",
		groupsPath+"/"+groupY,
		`{"name":"staging only","environment":"staging","entries":[{"key":"LARGE","value":"`+strings.Repeat("x", 300<<10)+`"}]}`,
	)
	w.must("PUT", projectsPath+projectY, strings.Replace(projectBody, `"slug":"shop"`, `"slug":"other"`, 1))
	before := w.pull(clusterA)
	unknown := "55555555-5555-4555-8555-55555555555f"
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		says               string
	}{
		"a name with a slash":       {"PUT", groupPath, `{"name":"a/b","entries":[]}`, 400, "name"},
		"no name":                   {"PUT", groupPath, `{"entries":[]}`, 400, "name"},
		"a bad key":                 {"PUT", groupPath, `{"name":"a","entries":[{"key":"1 A","value":"canary-1"}]}`, 400, "entries"},
		"a NUL":                     {"PUT", groupPath, `{"name":"a","entries":[{"key":"A","value":"canary-1\u0000"}]}`, 400, "entries.A"},
		"a key twice":               {"PUT", groupPath, `{"name":"a","entries":[{"key":"A","value":"1"},{"key":"A","value":"2"}]}`, 400, "entries[1].key"},
		"a new key without a value": {"PUT", groupPath, `{"name":"a","entries":[{"key":"NEW"}]}`, 400, "entries[0].value"},
		"a secret that is shown":    {"PUT", groupPath, `{"name":"database","entries":[{"key":"PASSWORD","secret":false}]}`, 400, "entries[0].value"},
		"too much":                  {"PUT", groupPath, `{"name":"a","entries":[{"key":"A","value":"` + strings.Repeat("x", 600<<10) + `"}]}`, 400, "entries"},
		"too much with what stays":  {"PUT", groupsPath + "/" + groupY, `{"name":"staging only","environment":"staging","entries":[{"key":"LARGE"},{"key":"A","value":"` + strings.Repeat("x", 300<<10) + `"}]}`, 400, "entries"},
		"a bad environment":         {"PUT", groupPath, `{"name":"a","environment":"Prod","entries":[]}`, 400, "environment"},
		"an unknown field":          {"PUT", groupPath, `{"name":"a","entries":[],"values":{}}`, 400, "values"},
		"a value that is no text":   {"PUT", groupPath, `{"name":"a","entries":[{"key":"A","value":17}]}`, 400, "value"},
		"another project's group":   {"PUT", projectsPath + projectY + "/var-groups/" + groupX, groupBody, 409, "another project"},
		"a name that is taken":      {"PUT", groupsPath + "/" + groupY, groupBody, 409, "name"},
		"an environment too small":  {"PUT", groupPath, strings.Replace(groupBody, `"name"`, `"environment":"staging","name"`, 1), 409, "attached"},
		"an unknown project":        {"PUT", projectsPath + projectZ + "/var-groups/" + groupX, groupBody, 404, "project"},
		"deleting what is attached": {"DELETE", groupPath, "", 409, "attached"},
		"deleting another's":        {"DELETE", projectsPath + projectY + "/var-groups/" + groupX, "", 404, "var group"},
		"an unknown group":          {"PUT", attachPath, `{"var_groups":["` + groupX + `","` + unknown + `"]}`, 422, "var_groups[1]"},
		"another environment's":     {"PUT", attachPath, `{"var_groups":["` + groupY + `"]}`, 422, "staging"},
		"a group twice":             {"PUT", attachPath, `{"var_groups":["` + groupX + `","` + groupX + `"]}`, 400, "var_groups[1]"},
		"no id":                     {"PUT", attachPath, `{"var_groups":["x"]}`, 400, "var_groups[0]"},
		"no list":                   {"PUT", attachPath, `{}`, 400, "var_groups"},
		"an unknown service":        {"PUT", strings.Replace(attachPath, serviceX, serviceY, 1), `{"var_groups":[]}`, 404, "service"},
		"groups in the service":     {"PUT", servicePath, strings.Replace(serviceBody, `"image"`, `"var_groups":[{"var_group_id":"`+groupX+`","attach_order":1}],"image"`, 1), 400, "var-groups"},
		"one that is not there":     {"GET", groupsPath + "/" + unknown, "", 404, "var group"},
	} {
		got := w.admin(test.method, test.path, test.body)
		require.Equal(t, test.status, got.status, "%s: %s", name, got.body)
		require.Contains(t, got.body, test.says, name)
		require.NotContains(t, got.body, "canary", name)
	}
	require.Equal(t, before.Generation, w.pull(clusterA).Generation)
	require.Empty(t, cmp.Diff(before.VarGroups, w.pull(clusterA).VarGroups))
	require.NotContains(t, w.log.String(), "canary")
}

func TestADeletedServiceOrProjectLeavesNoVarGroupBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.must("PUT", groupPath, groupBody)
	w.must("PUT", attachPath, `{"var_groups":["`+groupX+`"]}`)
	w.must("DELETE", servicePath, "")
	require.Equal(t, 404, w.admin("GET", attachPath, "").status)
	w.must("PUT", servicePath, serviceBody)
	require.JSONEq(t, `{"var_groups":[]}`, w.admin("GET", attachPath, "").body, "one that is put again begins without")
	w.must("PUT", attachPath, `{"var_groups":["`+groupX+`"]}`)
	w.must("DELETE", projectsPath+projectX, "")
	require.Empty(t, w.pull(clusterA).VarGroups)
	w.must("PUT", projectsPath+projectX, projectBody)
	require.JSONEq(t, `{"var_groups":[]}`, w.admin("GET", groupsPath, "").body)
	require.Equal(t, 201, w.admin("PUT", groupPath, groupBody).status)
	w.must("DELETE", projectsPath+projectX, "")
	w.removeCluster(t)
}

// removeCluster removes the first cluster, as if its agent had been silent for long.
func (w *world) removeCluster(t *testing.T) {
	t.Helper()
	require.NoError(t, w.store.Database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE clusters SET last_pull_at = 0`)
		return err
	}))
	require.Equal(t, 204, w.admin("DELETE", clustersPath+"/"+clusterA, "").status)
}

func TestKeysAreReplacedWithoutALoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.must("PUT", groupPath, groupBody)
	before := w.pull(clusterA)
	n, err := w.store.Rekey(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)

	old := w.everything()
	w.store.Keys = keys(t, "two", "one")
	require.Empty(t, cmp.Diff(before.VarGroups, w.pull(clusterA).VarGroups))
	n, err = w.store.Rekey(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(
		t,
		[]string{"rekey var-group " + projectX + "/" + groupX + " changed", "rekey var-group " + projectX + "/" + groupX + " changed"},
		w.newest(2),
	)
	require.NotEqual(t, old, w.everything())
	w.store.Keys = keys(t, "two")
	require.Empty(t, cmp.Diff(before, w.pull(clusterA)), "for agents nothing has changed")
	w.must("PUT", groupPath, `{"name":"renamed","entries":[{"key":"USER"},{"key":"PASSWORD"}]}`)
	require.Equal(t, before.VarGroups[0].Checksum, w.pull(clusterA).VarGroups[0].Checksum, "no value has changed, so no pod is restarted")
	w.must("PUT", groupPath, `{"name":"renamed","entries":[{"key":"USER"},{"key":"PASSWORD","value":"another"}]}`)
	require.NotEqual(t, before.VarGroups[0].Checksum, w.pull(clusterA).VarGroups[0].Checksum)
}

// TestNoReplicaIsWithoutAKeyWhileKeysAreReplaced takes two replicas through the steps of the
// runbook, one after the other, with a put between all of them.
func TestNoReplicaIsWithoutAKeyWhileKeysAreReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	start := func(names ...string) (*clusters.Store, error) {
		s := &clusters.Store{Database: w.store.Database, Keys: keys(t, names...)}
		if err := s.KnowKeys(t.Context()); err != nil {
			return nil, err
		}
		_, err := s.Rekey(t.Context())
		return s, err
	}
	replicas := make([]*clusters.Store, 2)
	value := 0
	put := func() {
		for _, s := range replicas {
			value++
			_, err := s.PutVarGroup(
				t.Context(),
				projectX,
				groupX,
				clusters.VarGroup{Name: "a", Entries: []clusters.VarGroupEntry{{Key: "A", Value: new(fmt.Sprint(value))}}},
			)
			require.NoError(t, err)
			for _, reader := range replicas {
				group, err := reader.VarGroup(t.Context(), projectX, groupX)
				require.NoError(t, err)
				require.Len(t, group.Entries, 1)
				_, err = reader.DesiredState(t.Context(), clusterA)
				require.NoError(t, err, "503 to every cluster with a var group")
			}
		}
	}
	for n := range replicas {
		var err error
		replicas[n], err = start("one")
		require.NoError(t, err)
	}
	put()
	for _, wrong := range [][]string{{"two", "one"}, {"two"}} {
		_, err := start(wrong...)
		require.ErrorIs(t, err, clusters.ErrNewKeyFirst, "%v: a step is left out", wrong)
		require.ErrorContains(t, err, "two: ")
		put()
	}
	for _, step := range [][]string{{"one", "two"}, {"two", "one"}, {"two"}} {
		for n := range replicas {
			var err error
			replicas[n], err = start(step...)
			require.NoError(t, err, "%v", step)
			put()
		}
	}
	require.NotContains(t, w.everything(), "\tone\t")
	_, err := start("one", "two")
	require.ErrorIs(t, err, clusters.ErrNewKeyFirst, "one that was given up is as unknown as a new one")
	_, err = start("three", "two")
	require.ErrorIs(t, err, clusters.ErrNewKeyFirst)
	require.NoError(t, w.store.ForgetKeys(t.Context()))
	_, err = start("three", "two")
	require.NoError(t, err, "after a restore no replica runs")
}

// TestHostileReadersOfChecksumsGuessNoValue guesses a short secret from what the database and
// the pods have of it.
func TestHostileReadersOfChecksumsGuessNoValue(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"put by this version": false, "put by an earlier version": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.seed()
			w.must("PUT", groupPath, `{"name":"pin","entries":[{"key":"PIN","value":"4711"}]}`)
			w.must("PUT", attachPath, `{"var_groups":["`+groupX+`"]}`)
			before := w.pull(clusterA)
			if old {
				sum := sha256.Sum256([]byte(`{"PIN":"4711"}`))
				w.update(`UPDATE var_groups SET checksum = 'sha256:` + hex.EncodeToString(sum[:]) + `'`)
				_, err := w.store.Rekey(t.Context())
				require.NoError(t, err)
				require.Greater(t, w.pull(clusterA).Generation, before.Generation, "agents are served the other checksum")
				_, err = w.store.Rekey(t.Context())
				require.NoError(t, err)
				require.Equal(t, before.Generation+1, w.pull(clusterA).Generation)
			}
			require.Equal(t, before.VarGroups, w.pull(clusterA).VarGroups)
			checksum := w.pull(clusterA).VarGroups[0].Checksum
			require.Contains(t, w.everything(), checksum)
			found := starbase.VarGroupChecksum(&w.pull(clusterA).VarGroups[0]) + " " + checksum
			for n := range 10_000 {
				for _, text := range []string{fmt.Sprintf(`{"PIN":"%04d"}`, n), fmt.Sprintf("%s\n{\"PIN\":\"%04d\"}", groupX, n), fmt.Sprintf("%04d", n)} {
					sum := sha256.Sum256([]byte(text))
					require.NotContains(t, found, hex.EncodeToString(sum[:]))
				}
			}
		})
	}
}

func TestWithoutItsKeyAClusterIsServedNothingAndAnotherAsEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.must("PUT", groupPath, groupBody)
	for _, test := range []struct {
		keys *keyring.Ring
		code string
	}{{keys(t, "three"), "sealed"}, {nil, "no_keys"}} {
		w.store.Keys = test.keys
		_, err := w.store.Rekey(t.Context())
		require.ErrorContains(t, err, "rekey")
		got := w.do("GET", "/api/v1/clusters/"+clusterA+"/desired-state", w.tokens[clusterA], "")
		require.Equal(t, 503, got.status, "nothing, rather than a state without the group")
		require.Equal(t, test.code, got.failure(t).Code)
		require.NotNil(t, w.pull(clusterB))
		require.Equal(t, 503, w.admin("GET", groupPath, "").status)
	}
	require.Equal(t, "no_keys", w.admin("PUT", groupsPath+"/"+groupY, `{"name":"b","entries":[{"key":"A","value":"1"}]}`).failure(t).Code)
	w.store.Keys = keys(t, "one")
	require.Len(t, w.pull(clusterA).VarGroups, 1)
}
