package starbase_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

func requireRefused(t *testing.T, reason starbase.Reason, body string) {
	t.Helper()
	state, err := starbase.Decode(strings.NewReader(body), clusterID)
	var refused *starbase.RefusedError
	require.ErrorAs(t, err, &refused, "body: %.200s", body)
	require.Equal(t, reason, refused.Reason, "%v", err)
	require.Nil(t, state)
}

func TestASealedBodyIsReadBackWhole(t *testing.T) {
	sent, body := sealed(t)
	got, err := starbase.Decode(bytes.NewReader(body), clusterID)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(sent, got))
	require.False(t, got.Basic())
	require.Equal(t, "f00d-7", got.Version)
	require.Equal(t, starbase.Counts{Projects: 1, Services: 2, VarGroups: 1}, got.Counts)
}

func TestABodyCutAtAnyByteIsRefused(t *testing.T) {
	_, body := sealed(t)
	for cut := range body {
		requireRefused(t, starbase.ReasonParse, string(body[:cut]))
	}
}

func TestABodyWithAnySingleByteChangedInItsContentIsRefused(t *testing.T) {
	sent, body := sealed(t)
	from := bytes.Index(body, []byte(`"cluster_config"`))
	require.Positive(t, from)
	for at := from; at < len(body); at++ {
		changed := bytes.Clone(body)
		changed[at] ^= 0x01
		got, err := starbase.Decode(bytes.NewReader(changed), clusterID)
		if err == nil {
			// A change inside an escape may spell the same value.
			require.Empty(t, cmp.Diff(sent, got), "byte %d changed from %q to %q", at, body[at], changed[at])
		}
	}
}

func TestAConnectionThatBreaksIsRefusedWithItsCause(t *testing.T) {
	_, body := sealed(t)
	broken := io.MultiReader(bytes.NewReader(body[:100]), iotest.ErrReader(io.ErrUnexpectedEOF))
	_, err := starbase.Decode(broken, clusterID)
	var refused *starbase.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, starbase.ReasonRead, refused.Reason)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestBodiesThatAreNotWhatTheySayAreRefused(t *testing.T) {
	_, good := sealed(t)
	edit := func(from, to string) string {
		t.Helper()
		require.Equal(t, 1, strings.Count(string(good), from), "%s", from)
		return strings.Replace(string(good), from, to, 1)
	}
	for name, test := range map[string]struct {
		body   string
		reason starbase.Reason
	}{
		"nothing":                   {"", starbase.ReasonParse},
		"null":                      {"null", starbase.ReasonParse},
		"a list":                    {"[]", starbase.ReasonParse},
		"an error page":             {"<html>502</html>", starbase.ReasonParse},
		"trailing garbage":          {string(good) + "x", starbase.ReasonParse},
		"two bodies":                {string(good) + string(good), starbase.ReasonParse},
		"a list twice":              {edit(`"complete":true`, `"services":[],"complete":true`), starbase.ReasonParse},
		"a key twice inside":        {edit(`"PASSWORD":`, `"PASSWORD":"","PASSWORD":`), starbase.ReasonParse},
		"a number for a text":       {edit(`"slug":"shop"`, `"slug":7`), starbase.ReasonParse},
		"endless depth":             {strings.Repeat("[", 1<<20), starbase.ReasonParse},
		"empty object":              {"{}", starbase.ReasonIncomplete},
		"an error body":             {`{"error":{"code":"unknown_cluster","message":"no"}}`, starbase.ReasonIncomplete},
		"basic without services":    {`{"version":"1"}`, starbase.ReasonIncomplete},
		"basic, services null":      {`{"version":"1","services":null}`, starbase.ReasonIncomplete},
		"basic without version":     {`{"services":[]}`, starbase.ReasonIncomplete},
		"services in capitals":      {`{"version":"1","Services":[]}`, starbase.ReasonIncomplete},
		"basic, another cluster":    {`{"version":"1","services":[],"cluster_id":"x"}`, starbase.ReasonClusterID},
		"schema 2":                  {edit(`"schema":1`, `"schema":2`), starbase.ReasonSchema},
		"schema null":               {edit(`"schema":1`, `"schema":null`), starbase.ReasonSchema},
		"another cluster":           {edit(clusterID, groupID), starbase.ReasonClusterID},
		"no cluster":                {edit(`"cluster_id":"`+clusterID+`",`, ``), starbase.ReasonClusterID},
		"no complete":               {edit(`"complete":true,`, ``), starbase.ReasonIncomplete},
		"complete false":            {edit(`"complete":true`, `"complete":false`), starbase.ReasonIncomplete},
		"no epoch":                  {edit(`"epoch":"f00d",`, ``), starbase.ReasonIncomplete},
		"no generation":             {edit(`"generation":7,`, ``), starbase.ReasonIncomplete},
		"negative generation":       {edit(`"generation":7`, `"generation":-7`), starbase.ReasonIncomplete},
		"counts wrong":              {edit(`"services":2`, `"services":3`), starbase.ReasonCounts},
		"no counts":                 {edit(`"counts":{"projects":1,"services":2,"var_groups":1},`, ``), starbase.ReasonCounts},
		"no digest":                 {edit(`"digest":`, `"digesd":`), starbase.ReasonDigest},
		"an image exchanged":        {strings.Replace(string(good), "shop:1.2", "shop:1.3", 1), starbase.ReasonDigest},
		"a tombstone taken back":    {edit(`"deleted":true`, `"deleted":false`), starbase.ReasonDigest},
		"another load balancer":     {edit(`"lb_size_units":3`, `"lb_size_units":4`), starbase.ReasonDigest},
		"another secret":            {edit(`hunter2`, `hunter3`), starbase.ReasonDigest},
		"another namespace":         {edit(`"proj-shop"`, `"proj-shap"`), starbase.ReasonDigest},
		"an unknown member slid in": {edit(`"slug":`, `"extra":1,"slug":`), starbase.ReasonDigest},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, test.reason, test.body)
		})
	}
}

func TestABodyAboveTheSizeLimitIsRefusedWithoutReadingOn(t *testing.T) {
	read := 0
	endless := readerFunc(func(p []byte) (int, error) {
		for i := range p {
			p[i] = ' '
		}
		read += len(p)
		return len(p), nil
	})
	_, err := starbase.Decode(endless, clusterID)
	var refused *starbase.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, starbase.ReasonTooLarge, refused.Reason)
	require.Less(t, read, 2*starbase.MaxBody+1)
}

func TestMembersOfANewerServerDoNotBreakTheDigest(t *testing.T) {
	body := `{"version":"e-1","schema":1,"cluster_id":"` + clusterID + `","epoch":"e","generation":1,"complete":true,
		"later":{"a":[1]},"counts":{"projects":0,"services":1,"var_groups":0,"later":4},
		"cluster_config":{"lb_size_units":3,"later":1.50},"projects":[],
		"services":[{"service_id":"s","later":{"z":1,"a":[true,null]},"ports":[{"container_port":80,"later":"x"}]}],
		"var_groups":[],"digest":"sha256:bad6518b794ea5ab4aa856a0ead51b656107d20782b8f388441591537e3da23d"}`
	got, err := starbase.Decode(strings.NewReader(body), clusterID)
	require.NoError(t, err)
	require.Equal(t, "s", got.Services[0].ServiceID)
	require.Equal(t, []starbase.Port{{ContainerPort: 80, Protocol: "TCP"}}, got.Services[0].Ports)
	requireRefused(t, starbase.ReasonDigest, strings.Replace(body, `"later":"x"`, `"later":"y"`, 1))
}

func TestABasicBodyIsAcceptedAndSaysSo(t *testing.T) {
	got, err := starbase.Decode(strings.NewReader(`{"version":"42","cluster_config":{"lb_size_units":2},
		"services":[{"service_id":"s","project_id":"p","environment":"e","image":"i","replicas":-1,"env":{"A":"b"},
		"ports":[{"container_port":80}],"hostname":"h","deleted":false}]}`), clusterID)
	require.NoError(t, err)
	require.True(t, got.Basic())
	require.Equal(t, -1, got.Services[0].Replicas)
}

func TestAnEmptyClusterIsAValidBody(t *testing.T) {
	state := &starbase.DesiredState{ClusterID: clusterID, Epoch: "e", Generation: 1}
	require.NoError(t, state.Seal())
	body, err := json.Marshal(state)
	require.NoError(t, err)
	require.Contains(t, string(body), `"services":[]`)
	_, err = starbase.Decode(bytes.NewReader(body), clusterID)
	require.NoError(t, err)
}

func TestSealRefusesABodyOfNobody(t *testing.T) {
	for _, state := range []starbase.DesiredState{
		{Epoch: "e", Generation: 1},
		{ClusterID: clusterID, Generation: 1},
		{ClusterID: clusterID, Epoch: "e"},
	} {
		require.Error(t, state.Seal())
		require.False(t, state.Complete)
	}
}

func TestTheDigestDoesNotDependOnTheOrderOfKeysOrOnWhiteSpace(t *testing.T) {
	state, body := sealed(t)
	var loose any
	require.NoError(t, json.Unmarshal(body, &loose))
	indented, err := json.MarshalIndent(loose, "", "\t")
	require.NoError(t, err)
	got, err := starbase.Decode(bytes.NewReader(indented), clusterID)
	require.NoError(t, err)
	digest, err := got.ComputeDigest()
	require.NoError(t, err)
	require.Equal(t, state.Digest, digest)
}

func FuzzDecode(f *testing.F) {
	_, body := sealed(f)
	f.Add(body)
	f.Add(body[:len(body)/2])
	f.Add([]byte(`{"version":"1","services":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		state, err := starbase.Decode(bytes.NewReader(body), clusterID)
		if err != nil {
			var refused *starbase.RefusedError
			require.True(t, errors.As(err, &refused), "%v", err)
			require.Nil(t, state)
			return
		}
		require.NotNil(t, state.Services)
		if !state.Basic() {
			require.Equal(t, clusterID, state.ClusterID)
			require.Len(t, state.Services, state.Counts.Services)
		}
		for cut := range bytes.TrimRight(body, " \t\r\n") {
			if _, err := starbase.Decode(bytes.NewReader(body[:cut]), clusterID); err == nil {
				t.Fatalf("accepted %d of %d bytes", cut, len(body))
			}
			if cut > 64 {
				break
			}
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
