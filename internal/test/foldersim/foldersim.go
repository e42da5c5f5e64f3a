// Package foldersim is a scenario of package simtest for a program that makes the files of a
// folder true in a cluster.
package foldersim

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const files = "files.example.com"

// ofAllParts are the annotation of an ApplySet with its namespaces, and that with the hash of it all.
var ofAllParts = regexp.MustCompile(`"applyset\.kubernetes\.io/additional-namespaces":"[^"]*",?|"[a-z.]+/desired-hash":"[0-9a-f]+",?`)

// Set is what the program makes of the folder.
type Set struct {
	// Folder is where the files are checked out.
	Folder string
	// Label is the label of each object of the set, with its value.
	Label, Value string
	// Memory is what the names of the ConfigMaps begin with that the program keeps for itself,
	// and Forgets the one of them that differs with the history.
	Memory, Forgets string
	// Whole is whether the program deletes nothing while an object of the folder cannot be
	// applied: then each one can be.
	Whole bool
}

// Scenario returns a user who edits files, which state objects of several kinds in two
// namespaces, one of which others have made. Program and Machinery are missing.
func (s Set) Scenario(t *testing.T) simtest.Scenario {
	t.Helper()
	f := folder{s.Folder, t}
	return simtest.Scenario{
		Kinds: []simtest.Kind{
			{Group: "example.com", Version: "v1", Resource: "files", Kind: "File", Cluster: true},
			{Version: "v1", Resource: "namespaces", Kind: "Namespace", Cluster: true, Status: true},
			{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
			{Version: "v1", Resource: "secrets", Kind: "Secret"},
			{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
		},
		Start: func(w *simtest.World) {
			others := content(wanted[theirs], 0)
			others["data"] = map[string]any{"of": "others"}
			if err := errors.Join(w.As("others").Create(others), w.Create(fileOf(0, 0))); err != nil {
				panic(err)
			}
		},
		Actors: []func(*simtest.World, simtest.Change){f.checkOut},
		Edit:   s.edit,
		Edits:  12, Rest: time.Hour,
		Check: simtest.Checks(
			simtest.NotAnothers("namespaces", s.ours), simtest.NotAnothers("configmaps", s.ours), simtest.NotAnothers("secrets", s.ours),
			simtest.NotAnothers("deployments.apps", s.ours),
		),
		Converged: s.asTheFiles,
		// The other world has no others; and what was deleted when is of a history. A set that may have parts goes
		// on to name the namespaces of all that it had: another part may state an object there.
		State: func(w *simtest.World) string {
			lines := slices.DeleteFunc(strings.Split(w.State(), "\n"), func(line string) bool {
				return strings.Contains(line, `"name":"theirs"`) || strings.Contains(line, `"name":"`+s.Forgets+`"`)
			})
			for i, line := range lines {
				if strings.Contains(line, `"name":"`+s.Memory+`"`) {
					lines[i] = ofAllParts.ReplaceAllString(line, "")
				}
			}
			return strings.Join(lines, "\n")
		},
	}
}

// wanted are the objects that a file may state: by kind, namespace and name.
var wanted = []simtest.Object{
	{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": "a"}},
	{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "extra"}},
	{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "extra", "name": "b"}},
	{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": "theirs"}},
	{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "default", "name": "s"}},
	{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "default", "name": "web"}},
}

// The indexes of two of them.
const (
	inExtra = 2 // in a namespace that another file states
	theirs  = 3 // others have made it
)

// content is what the n-th edition of a file states of an object, in JSON, which is YAML.
func content(o simtest.Object, n int) map[string]any {
	stated := map[string]any{"apiVersion": o["apiVersion"], "kind": o["kind"], "metadata": o["metadata"]}
	switch o["kind"] {
	case "ConfigMap":
		stated["data"] = map[string]any{"n": fmt.Sprint(n)}
	case "Secret":
		stated["stringData"] = map[string]any{"n": fmt.Sprint(n)}
	case "Deployment":
		labels := map[string]any{"app": "web"}
		stated["spec"] = map[string]any{"replicas": n, "selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": fmt.Sprint("example.com/web:", n)}}},
		}}
	}
	return stated
}

// folder is what the program reads. A user keeps the files in the server of the simulated
// world, and they are checked out as they change.
type folder struct {
	path string
	t    *testing.T
}

func (f folder) checkOut(w *simtest.World, _ simtest.Change) {
	want := map[string]string{}
	for _, file := range w.Objects(files) {
		want[file.Name()+".yaml"] = fmt.Sprint(file.Field("spec", "text"))
	}
	have, err := filepath.Glob(filepath.Join(f.path, "*.yaml"))
	require.NoError(f.t, err)
	for _, path := range have {
		if _, ok := want[filepath.Base(path)]; !ok {
			require.NoError(f.t, os.Remove(path))
		}
	}
	for name, text := range want {
		require.NoError(f.t, os.WriteFile(filepath.Join(f.path, name), []byte(text), 0o600))
	}
}

func (s Set) edit(w *simtest.World) {
	at := w.Random.IntN(len(wanted))
	if s.Whole && at == theirs || at == inExtra && w.Object(files, "", "f1") == nil {
		return // whether it is there in the end would depend on when the namespace went
	}
	file := fileOf(at, w.Random.IntN(3))
	switch live := w.Object(files, "", file.Name()); {
	case live == nil:
		_ = w.Create(file) // it is not there
	// A folder without an object deletes nothing, and a namespace stays while it is needed.
	case at > 0 && (at > 1 || w.Object(files, "", "f2") == nil) && w.Random.IntN(3) == 0:
		_ = w.Delete(files, "", file.Name()) // it is there
	default:
		_ = w.Update(files, "", file.Name(), func(o simtest.Object) { o["spec"] = file["spec"] }) // it is there
	}
}

// fileOf returns an edition of the file of an object.
func fileOf(at, edition int) simtest.Object {
	text, err := json.Marshal(content(wanted[at], edition))
	if err != nil {
		panic(err)
	}
	return simtest.Object{
		"apiVersion": "example.com/v1", "kind": "File", "metadata": map[string]any{"name": fmt.Sprint("f", at)},
		"spec": map[string]any{"text": string(text)},
	}
}

// ours reports whether an object is of the set, or its memory.
func (s Set) ours(o simtest.Object) bool {
	return o.Label(s.Label) == s.Value || strings.HasPrefix(o.Name(), s.Memory)
}

// asTheFiles returns an error unless exactly the stated objects are there, and as stated.
func (s Set) asTheFiles(w *simtest.World) (err error) {
	stated := map[string]bool{}
	for _, file := range w.Objects(files) {
		var o simtest.Object
		if err := json.Unmarshal(fmt.Append(nil, file.Field("spec", "text")), &o); err != nil {
			return err
		}
		live := w.Object(resources[fmt.Sprint(o["kind"])], o.Namespace(), o.Name())
		stated[fmt.Sprint(o["kind"], o.Namespace(), o.Name())] = true
		switch {
		case o.Name() == "theirs":
		case live == nil || !s.ours(live):
			err = errors.Join(err, fmt.Errorf("%s is stated, and is %v", o.Name(), live))
		case !contains(live, o):
			err = errors.Join(err, fmt.Errorf("%s is stated as %v, and is %v", o.Name(), o, live))
		}
	}
	for kind, resource := range resources {
		for _, live := range w.Objects(resource) {
			known := stated[fmt.Sprint(kind, live.Namespace(), live.Name())] || strings.HasPrefix(live.Name(), s.Memory)
			if live.Label(s.Label) == s.Value && !known {
				err = errors.Join(err, fmt.Errorf("%s %s is not stated any more, and is there", kind, live.Name()))
			}
		}
	}
	return err
}

var resources = map[string]string{
	"Namespace": "namespaces", "ConfigMap": "configmaps", "Secret": "secrets", "Deployment": "deployments.apps",
}

// contains reports whether a live object has what is stated of its data and replicas.
func contains(live, stated simtest.Object) bool {
	switch stated["kind"] {
	case "ConfigMap":
		return live.Field("data", "n") == stated.Field("data", "n")
	case "Secret":
		text, _ := stated.Field("stringData", "n").(string)
		return live.Field("data", "n") == base64.StdEncoding.EncodeToString([]byte(text))
	case "Deployment":
		return fmt.Sprint(live.Field("spec", "replicas")) == fmt.Sprint(stated.Field("spec", "replicas"))
	default:
		return true
	}
}
