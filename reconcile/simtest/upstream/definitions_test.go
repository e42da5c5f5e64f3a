package upstream_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

func TestADefinitionThatAServerRefusesIsAnError(t *testing.T) {
	t.Parallel()
	valid, err := os.ReadFile("testdata/parts.yaml")
	require.NoError(t, err)
	for what, c := range map[string]struct{ from, to, want string }{
		"a rule that is none": {
			"rule: self == oldSelf", `rule: "self =="`,
			"properties[spec].properties[zone].x-kubernetes-validations[0].rule: Invalid value",
		},
		"a rule about an unknown field": {"self.limit >= self.replicas", "self.limit >= self.nothing", "undefined field 'nothing'"},
		"a field without a type":        {"limit: {type: integer}", "limit: {minimum: 1}", "properties[limit].type: Required value"},
		"a default that is invalid":     {"default: 3", "default: 30", "properties[replicas].default: Invalid value: 30"},
		"a map without keys":            {"x-kubernetes-list-map-keys: [name]", "nullable: false", "x-kubernetes-list-map-keys: Required value"},
		"a misspelt field":              {"x-kubernetes-list-type: set", "x-kubernetes-list-typ: set", "unknown field"},
		"another name":                  {"name: parts.example.com", "name: pieces.example.com", "pieces.example.com: metadata.name: Invalid value"},
		"no stored version":             {"storage: true", "storage: false", "must have exactly one version marked as storage version"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(string(valid), c.from, c.to, 1)
			require.NotEqual(t, string(valid), text)
			file := filepath.Join(t.TempDir(), "bad.yaml")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			_, err := upstream.Definitions(file)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, file)
		})
	}
}

// own is a kind of a project, in one scheme with those of Kubernetes.
type own struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (o *own) DeepCopyObject() runtime.Object {
	return &own{TypeMeta: o.TypeMeta, ObjectMeta: *o.DeepCopy()}
}

func TestASchemeMayHaveKindsOfTheProject(t *testing.T) {
	t.Parallel()
	all := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(all))
	all.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Part"}, &own{})
	defined, err := upstream.Definitions("testdata/parts.yaml")
	require.NoError(t, err)
	for what, kinds := range map[string][]simtest.Kind{
		"without a definition": {{Group: "example.com", Version: "v1", Resource: "parts", Kind: "Part"}},
		"with a definition":    defined,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := &simtest.Server{Kinds: kinds, Machinery: &upstream.Machinery{Scheme: all}}
			for _, l := range []line{
				{"it is applied", applied, "/a?fieldManager=x", part("a", `"color":"red"`), 201, `"f:color":{}`},
				{"another one applies", applied, "/a?fieldManager=y", part("a", `"color":"blue"`), 409, `.spec.color`},
				{"it is created", post, "?fieldManager=z", part("b", `"color":"red"`), 201, `"manager":"z"`},
				{"and changed", merge, "/b?fieldManager=w", `{"spec":{"color":"blue"}}`, 200, `"manager":"w"`},
			} {
				code, body := l.say(t, server, "http://simtest")
				text, err := json.Marshal(body)
				require.NoError(t, err)
				require.Equal(t, l.code, code, "%s: %s", l.what, text)
				require.Contains(t, string(text), l.text, l.what)
			}
		})
	}
}
