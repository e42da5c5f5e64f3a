package program_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/internal/test/helmtest"
)

// charts is the folder of the Helm charts that are made of the bases. The agent-run operator has one of
// its own.
const charts = bases + "/charts"

// In a Deployment these stand where the chart has a template.
const (
	imageMark, envMark, resourcesMark, podMark = "CHART_IMAGE", "CHART_ENV", "CHART_RESOURCES", "CHART_POD"
	labelsMark, annotationsMark                = "CHART_LABELS", "CHART_ANNOTATIONS"
)

const podTemplate = `{{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}`

const envTemplate = `
        {{- if not (hasKey .Values.settings "GOMEMLIMIT") }}
        {{- with include "goMemoryLimit" (dig "limits" "memory" "" .Values.resources) }}
        - name: GOMEMLIMIT
          value: {{ . | quote }}
        {{- end }}
        {{- end }}
        {{- range $name, $value := .Values.settings }}
        {{- if eq (toString $value) "" }}{{ fail (printf "settings.%s: is required" $name) }}{{ end }}
        {{- /* A whole number of a file arrives as a float, which prints as 4e+08. */ -}}
        {{- if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ $value = int64 $value }}{{ end }}{{ end }}
        - name: {{ $name | quote }}
          value: {{ tpl (toString $value) $ | quote }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}`

// helpersText computes nine tenths of a limit of memory, rounded as package installation does it. Of what
// it cannot read it is empty, and what is no quantity is refused by the schema.
const helpersText = `{{- define "goMemoryLimit" -}}
{{- /* A number of a file is a float, which prints as 1e+09. */ -}}
{{- $text := ternary (toString (int64 .)) (toString .) (kindIs "float64" .) -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $text -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if and $number (hasKey $factors $unit) -}}
{{- mul (div (mulf (float64 $number) (float64 (get $factors $unit)) | floor | int64) 10) 9 -}}
{{- end -}}
{{- end -}}
`

// schemaText refuses what would be ignored, and what no Deployment can have.
const schemaText = `{
  "$schema": "https://json-schema.org/draft-07/schema#",
  "title": "Values of the chart %s",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "global": {"type": "object"},
    "image": {
      "type": "object",
      "additionalProperties": false,
      "required": ["repository"],
      "properties": {
        "repository": {"type": "string", "pattern": "^[a-z0-9][a-zA-Z0-9._:/-]*$"},
        "tag": {"type": "string", "pattern": "^([a-zA-Z0-9_][a-zA-Z0-9._-]{0,127})?$"},
        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]}
      }
    },
    "imagePullSecrets": {
      "type": "array",
      "items": {
        "type": "object", "additionalProperties": false, "required": ["name"],
        "properties": {"name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"}}
      }
    },
    "settings": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
%s
      }
    },
    "env": {
      "type": "array",
      "items": {
        "type": "object", "additionalProperties": false, "required": ["name"],
        "anyOf": [{"required": ["value"]}, {"required": ["valueFrom"]}],
        "properties": {"name": {"type": "string", "minLength": 1}, "value": {"type": "string"}, "valueFrom": {"type": "object"}}
      }
    },
    "resources": {
      "type": "object",
      "properties": {"limits": {"$ref": "#/definitions/quantities"}, "requests": {"$ref": "#/definitions/quantities"}}
    },
%s    "podAnnotations": {"$ref": "#/definitions/strings"},
    "podLabels": {"$ref": "#/definitions/strings"},
    "nodeSelector": {"$ref": "#/definitions/strings"},
    "tolerations": {"type": "array", "items": {"type": "object"}},
    "affinity": {"type": "object"},
    "priorityClassName": {"type": "string"}
  },
  "definitions": {
    "strings": {"type": "object", "additionalProperties": {"type": "string"}},
    "quantities": {
      "type": "object",
      "additionalProperties": {
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+([.][0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"}]
      }
    },
    "name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"},
    "text": {"type": ["string", "number", "boolean"]},
    "switch": {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^(|1|0|[tT]|[fF]|true|True|TRUE|false|False|FALSE)$|[{][{]"}]},
    "whole": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^(|-?[0-9]+)$|[{][{]"}]},
    "number": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(|-?[0-9]+([.][0-9]+)?)$|[{][{]"}]},
    "duration": {
      "anyOf": [{"const": 0}, {"type": "string", "pattern": "^(|0|-?([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+)$|[{][{]"}]
    },
    "uuid": {"type": "string", "pattern": "^(|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$|[{][{]"},
    "url": {"type": "string", "pattern": "^(|[a-z][a-z0-9+.-]*://.+)$|[{][{]"}
  }
}
`

// runtimeVariables are settings of every program: of Go, and of its client of HTTP.
var runtimeVariables = []string{
	"GODEBUG",
	"GOGC",
	"GOMAXPROCS",
	"GOMEMLIMIT",
	"HTTPS_PROXY",
	"HTTP_PROXY",
	"NO_PROXY",
	"SSL_CERT_DIR",
	"SSL_CERT_FILE",
}

var (
	settingRow = regexp.MustCompile("(?m)^\\| `[^`]*--[a-z0-9-]+ ?([a-zA-Z0-9]*)` \\| `([A-Z0-9_]+)` \\| (.*) \\|$")
	durations  = regexp.MustCompile(`\(default ([0-9]+(ms|s|m|h))+\)`)
	wholes     = regexp.MustCompile(`\(default [0-9]+\)`)
	switches   = regexp.MustCompile(`\(default (true|false)\)`)
)

// settings are the variables of the program that run it, with what each must be, as the manual of the
// program has them. A setting that the program parses by itself is a string there, and goes by its default.
// Those of the base that the program leaves to a library are texts.
func (h habit) settings(t *testing.T, path string, base []string) string {
	t.Helper()
	dir := t.TempDir()
	code, _, stderr := call(t, path, "man", "--markdown", dir)
	require.Zero(t, code, stderr)
	page, err := os.ReadFile(filepath.Join(dir, h.name+".md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n## "+h.name+"\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	kinds := map[string]string{}
	for _, name := range slices.Concat(runtimeVariables, base) {
		kinds[name] = "text"
	}
	for _, row := range settingRow.FindAllStringSubmatch(section, -1) {
		kind, name, usage := row[1], row[2], row[3]
		switch {
		case kind == "duration" || durations.MatchString(usage):
			kinds[name] = "duration"
		case kind == "" || switches.MatchString(usage):
			kinds[name] = "switch"
		case kind == "int" || wholes.MatchString(usage):
			kinds[name] = "whole"
		case kind == "float":
			kinds[name] = "number"
		case strings.HasPrefix(usage, "UUID "):
			kinds[name] = "uuid"
		case strings.HasPrefix(usage, "URL "), strings.HasSuffix(name, "BASE_URL"), strings.HasSuffix(name, "CONTROL_URL"):
			kinds[name] = "url"
		default:
			kinds[name] = "text"
		}
	}
	require.Greater(t, len(kinds), len(runtimeVariables)+5, "%s has settings", h.name)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines, fmt.Sprintf(`        %q: {"$ref": "#/definitions/%s"}`, name, kinds[name]))
	}
	return strings.Join(lines, ",\n")
}

// more are the values that only this chart has: for flags of its command, and for its volume.
func more(name string) (values, schema string) {
	secrets := func(database string) string {
		return "# Names of Secrets: controlplane has admin-token and var-group-keys" + database
	}
	switch name {
	case "controlplane":
		return secrets(".") + `
secrets:
  controlplane: trueup-controlplane

# The volume of the database. An empty class: the standard one of the cluster.
volume:
  size: 5Gi
  storageClassName: ""

`, `    "secrets": {
      "type": "object", "additionalProperties": false, "properties": {"controlplane": {"$ref": "#/definitions/name"}}
    },
    "volume": {
      "type": "object", "additionalProperties": false,
      "properties": {
        "size": {"type": "string", "pattern": "^[1-9][0-9]*(Mi|Gi|Ti|M|G|T)$"},
        "storageClassName": {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$"}
      }
    },
`
	case "controlplane-postgresql":
		return `replicas: 2

` + secrets(", database has url and ca.crt.") + `
secrets:
  controlplane: trueup-controlplane
  database: trueup-controlplane-database

`, `    "replicas": {"type": "integer", "minimum": 1, "maximum": 100},
    "secrets": {
      "type": "object", "additionalProperties": false,
      "properties": {"controlplane": {"$ref": "#/definitions/name"}, "database": {"$ref": "#/definitions/name"}}
    },
`
	}
	return "", ""
}

// named makes the names of the Secrets in a pod values.
func named(part any) {
	set := func(of any, key string) {
		if m, ok := of.(map[string]any); ok {
			switch m[key] {
			case "trueup-controlplane":
				m[key] = "{{ .Values.secrets.controlplane }}"
			case "trueup-controlplane-database":
				m[key] = "{{ .Values.secrets.database }}"
			}
		}
	}
	switch part := part.(type) {
	case map[string]any:
		set(part["secretKeyRef"], "name")
		set(part["secret"], "secretName")
		for _, of := range part {
			named(of)
		}
	case []any:
		for _, of := range part {
			named(of)
		}
	}
}

const valuesText = `# What "helm install" is told with --set or --values.

image:
  repository: %s
  # Empty: the appVersion of the chart.
  tag: ""
  pullPolicy: IfNotPresent
# Secrets to pull the image with: [{name: registry}].
imagePullSecrets: []

# Settings by their variables, which "%s --help" lists. One that is empty here must be given.
# GOMEMLIMIT is nine tenths of the limit of memory, unless it is here ("off" for none). null takes a setting away.
%s
# Further variables, as in a container: [{name: N, valueFrom: {secretKeyRef: {name: S, key: K}}}].
env: []

%s
%spodAnnotations: {}
podLabels: {}
nodeSelector: {}
tolerations: []
affinity: {}
priorityClassName: ""
`

// chart is the Helm chart of a base, file by file.
func (h habit) chart(t *testing.T, path, name, manifests string) map[string]string {
	t.Helper()
	var templates, definitions []string
	var values, known string
	namespace := regexp.MustCompile(`(?m)^  namespace: (\S+)$`).FindStringSubmatch(manifests)[1]
	released := func(text string) string {
		return regexp.MustCompile(`\b`+regexp.QuoteMeta(namespace)+`\b`).ReplaceAllString(text, "{{ .Release.Namespace }}")
	}
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		text = strings.TrimPrefix(strings.TrimSpace(text), "---\n")
		var o unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
		switch o.GetKind() {
		case "Namespace": // helm install --create-namespace makes it
		case "CustomResourceDefinition":
			// A release that is uninstalled leaves the objects of its users.
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["helm.sh/resource-policy"] = "keep"
			o.SetAnnotations(annotations)
			definition, err := yaml.Marshal(o.Object)
			require.NoError(t, err)
			definitions = append(definitions, string(definition))
		case "Deployment":
			var template string
			var set []string
			template, values, set = h.deployment(t, o, name, released)
			known = h.settings(t, path, set)
			templates = append(templates, template)
		default:
			require.NotContains(t, text, "{{")
			text = released(text) + "\n"
			if o.GetKind() == "PersistentVolumeClaim" {
				require.Contains(t, text, "      storage: 5Gi\n")
				text = strings.Replace(text, "      storage: 5Gi\n", "      storage: {{ .Values.volume.size }}\n"+
					"  {{- with .Values.volume.storageClassName }}\n  storageClassName: {{ . }}\n  {{- end }}\n", 1)
			}
			templates = append(templates, text)
		}
	}
	require.NotEmpty(t, values)
	_, further := more(name)
	files := map[string]string{
		"Chart.yaml": fmt.Sprintf(`apiVersion: v2
name: %s
description: The program %s of trueup, as "%s manifests" prints it.
type: application
version: 0.1.0
appVersion: latest
kubeVersion: ">=1.31.0-0"
sources:
- https://github.com/seed-9e1ffd66/trueup
`, name, h.name, h.name),
		"values.yaml":              values,
		"values.schema.json":       fmt.Sprintf(schemaText, name, known, further),
		"templates/_helpers.tpl":   helpersText,
		"templates/manifests.yaml": strings.Join(templates, "---\n"),
	}
	if len(definitions) > 0 {
		// No template: the text of a definition may contain what looks like one.
		files["files/definitions.yaml"] = strings.Join(definitions, "---\n")
		files["templates/definitions.yaml"] = `{{ .Files.Get "files/definitions.yaml" }}` + "\n"
	}
	return files
}

// deployment is the template of a Deployment, and the values that go into it.
func (h habit) deployment(
	t *testing.T, o unstructured.Unstructured, name string, released func(string) string,
) (template, values string, set []string) {
	t.Helper()
	var d appsv1.Deployment
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
	container := d.Spec.Template.Spec.Containers[0]
	settings := map[string]string{}
	var fixed []any
	for _, v := range container.Env {
		if v.Name == "GOMEMLIMIT" {
			continue // it goes by the limit
		}
		if v.ValueFrom == nil {
			settings[v.Name] = released(v.Value)
			// What the manifests ask for has an example there, and no default here.
			if slices.Contains(h.needed, v.Value) {
				settings[v.Name] = ""
			}
			continue
		}
		from, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v)
		require.NoError(t, err)
		fixed = append(fixed, from)
	}
	spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	require.NoError(t, err)
	first := spec["containers"].([]any)[0].(map[string]any)
	resources, repository := first["resources"], strings.TrimSuffix(container.Image, ":latest")
	require.NotEqual(t, container.Image, repository)
	first["image"], first["imagePullPolicy"] = imageMark, "{{ .Values.image.pullPolicy }}"
	first["env"], first["resources"] = envMark, resourcesMark
	spec["AAA"] = podMark // the first key
	require.NoError(t, unstructured.SetNestedMap(o.Object, spec, "spec", "template", "spec"))
	require.NoError(t, unstructured.SetNestedField(o.Object, labelsMark, "spec", "template", "metadata", "labels", "zzz"))
	require.NoError(t, unstructured.SetNestedField(o.Object, annotationsMark, "spec", "template", "metadata", "annotations"))
	further, _ := more(name)
	if further != "" {
		named(o.Object)
		named(fixed)
	}
	text := released(marshal(t, o.Object))
	if strings.Contains(further, "replicas:") {
		require.Contains(t, text, "  replicas: 2\n")
		text = strings.Replace(text, "  replicas: 2\n", "  replicas: {{ int .Values.replicas }}\n", 1)
	}

	env := "env:"
	if len(fixed) > 0 {
		env += "\n" + strings.TrimSuffix(indented(released(marshal(t, fixed)), "        "), "\n")
	}
	for _, replace := range [][2]string{
		{`AAA: ` + podMark, podTemplate},
		{"env: " + envMark, env + envTemplate},
		{imageMark, `"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"`},
		{"'{{ .Values.image.pullPolicy }}'", "{{ .Values.image.pullPolicy }}"},
		{"resources: " + resourcesMark, "resources:\n          {{- toYaml .Values.resources | nindent 10 }}"},
		{"zzz: " + labelsMark, "{{- with .Values.podLabels }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}"},
		{
			"annotations: " + annotationsMark,
			"{{- with .Values.podAnnotations }}\n      annotations:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}",
		},
	} {
		require.Equal(t, 1, strings.Count(text, replace[0]), "%s in %s", replace[0], text)
		text = strings.Replace(text, replace[0], replace[1], 1)
	}
	return text, fmt.Sprintf(
		valuesText,
		repository,
		h.name,
		marshal(
			t,
			map[string]any{"settings": settings},
		),
		marshal(t, map[string]any{"resources": resources}),
		further,
	), slices.Collect(maps.Keys(settings))
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

func indented(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(by + line)
	}
	return b.String()
}

// upToDate compares a folder with these files, and with -update writes them.
func upToDate(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for file, want := range files {
		file = filepath.Join(dir, file)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644)) //nolint:gosec // for everybody to read
		}
		have, err := os.ReadFile(file)
		require.NoError(t, err, "run make generate")
		require.Equal(t, want, string(have), "run make generate")
	}
}

// TestEachChartMakesWhatItsBaseHas: with the values of the base, in its namespace, Helm renders the same
// objects. Each value reaches its field, and a required setting that is missing is named.
func TestEachChartMakesWhatItsBaseHas(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(charts)
	require.NoError(t, err)
	require.Len(t, entries, 6)
	for _, entry := range entries {
		t.Run(entry.Name(), func(t *testing.T) {
			t.Parallel()
			base, err := os.ReadFile(filepath.Join(bases, entry.Name(), "manifests.yaml"))
			require.NoError(t, err)
			want := helmtest.Objects(t, string(base))
			var namespace string
			args := []string{"template", "r", filepath.Join(charts, entry.Name())}
			var needed []string
			for name, o := range want {
				if o.GetKind() == "Namespace" {
					namespace = o.GetName()
					delete(want, name)
				}
			}
			for _, v := range containerOf(t, want).Env {
				if v.ValueFrom == nil && strings.Contains(valuesOf(t, entry.Name()), "  "+v.Name+": \"\"\n") {
					needed = append(needed, v.Name)
					args = append(args, "--set-string", "settings."+v.Name+"="+v.Value)
				}
			}
			args = append(args, "--namespace", namespace)
			out, err := helmtest.Run(t, nil, args...)
			require.NoError(t, err)
			have := helmtest.Objects(t, out)
			require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)))
			for name := range want {
				if want[name].GetKind() == "CustomResourceDefinition" {
					require.Equal(t, "keep", have[name].GetAnnotations()["helm.sh/resource-policy"])
					annotations := have[name].GetAnnotations()
					delete(annotations, "helm.sh/resource-policy")
					have[name].SetAnnotations(annotations)
				}
				if want[name].GetKind() == "Deployment" {
					require.Equal(t, variables(t, want), variables(t, have))
					for _, o := range []*unstructured.Unstructured{want[name], have[name]} {
						containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
						require.NoError(t, err)
						container := containers[0].(map[string]any)
						delete(container, "env")
						if o == have[name] {
							require.Equal(t, "IfNotPresent", container["imagePullPolicy"])
							delete(container, "imagePullPolicy")
						}
						require.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
					}
				}
				require.Equal(t, want[name].Object, have[name].Object, name)
			}

			numbers := filepath.Join(t.TempDir(), "numbers.yaml")
			require.NoError(t, os.WriteFile(numbers, []byte("settings: {GOGC: 483183819, GODEBUG: 1.5, NO_PROXY: true}"), 0o600))
			out, err = helmtest.Run(t, nil, append(args,
				"--set", "image.tag=v1,podLabels.team=a,podAnnotations.x=y,nodeSelector.pool=p,priorityClassName=high",
				"--set", "imagePullSecrets[0].name=registry,tolerations[0].operator=Exists,env[0].name=MORE", "--set-string", "env[0].value=1",
				"--set", "resources.limits.memory=1Gi,image.pullPolicy=Never", "--values", numbers)...)
			require.NoError(t, err)
			told := helmtest.Objects(t, out)
			d := deploymentOf(t, told)
			container := containerOf(t, told)
			require.Regexp(t, ":v1$", container.Image)
			require.Equal(t, corev1.PullNever, container.ImagePullPolicy)
			require.Equal(t, []string{"483183819", "1.5", "true"}, []string{
				variables(t, told)["GOGC"], variables(t, told)["GODEBUG"], variables(t, told)["NO_PROXY"],
			})
			require.Equal(t, "1Gi", container.Resources.Limits.Memory().String())
			require.Equal(t, "1", variables(t, told)["MORE"])
			require.Equal(t, "966367638", variables(t, told)["GOMEMLIMIT"], "nine tenths")
			for set, want := range map[string]string{
				"resources.limits.memory=2G": "1800000000", "resources.limits.memory=1000000000": "900000000",
				"resources.limits.memory=1.5Gi": "1449551457", "settings.GOMEMLIMIT=off": "off", "resources.limits=null": "",
			} {
				out, err = helmtest.Run(t, nil, append(args, "--set", set)...)
				require.NoError(t, err)
				require.Equal(t, want, variables(t, helmtest.Objects(t, out))["GOMEMLIMIT"], set)
			}
			theirs(t, entry.Name(), args)
			pod := d.Spec.Template
			require.Equal(t, "a", pod.Labels["team"])
			require.Equal(t, "y", pod.Annotations["x"])
			require.Equal(t, []any{"p", "high", "registry", 1}, []any{
				pod.Spec.NodeSelector["pool"], pod.Spec.PriorityClassName, pod.Spec.ImagePullSecrets[0].Name, len(pod.Spec.Tolerations),
			})
			if len(needed) > 0 {
				_, err = helmtest.Run(t, nil, "template", "r", filepath.Join(charts, entry.Name()))
				slices.Sort(needed)
				require.ErrorContains(t, err, "settings."+needed[0]+": is required")
			}
			for wrong, named := range map[string]string{
				"setings.A=b": "setings", "image.tagg=v1": "tagg", "image.pullPolicy=Sometimes": "pullPolicy", "settings.GOGC.B=c": "/settings/GOGC",
				"settings.NOSUCH=1": "NOSUCH", "resources.limits.memory=true": "/resources/limits/memory", "env[0].name=A": "/env/0",
				"podLabels.team=1": "/podLabels/team", "env[0].nam=A": "nam",
				"imagePullSecrets[0]=registry": "imagePullSecrets",
			} {
				_, err = helmtest.Run(t, nil, append(args, "--set", wrong)...)
				require.ErrorContains(t, err, "don't meet the specifications of the schema", wrong)
				require.ErrorContains(t, err, named)
			}
			elsewhere, err := helmtest.Run(t, nil, append(args, "--namespace", "elsewhere")...)
			require.NoError(t, err)
			require.NotContains(t, elsewhere, namespace)
			_, err = helmtest.Run(t, nil, append([]string{"lint", "--strict"}, args[2:]...)...)
			require.NoError(t, err)
		})
	}
}

// theirs sets the values that only one chart has, and values that a setting of a kind cannot have.
func theirs(t *testing.T, name string, args []string) {
	t.Helper()
	refused := map[string][]string{
		"shuttle": {
			"settings.STARFORM_SOFT_LIMIT=abc", "settings.STARFORM_STARBASE_URL=notaurl", "settings.STARFORM_CLUSTER_ID=notauuid",
			"settings.STARFORM_CAPACITY_INTERVAL=soon", "settings.STARFORM_LEADER_ELECTION=perhaps",
		},
		"controlplane": {"replicas=2", "volume.size=much", "volume.storageClassName=A", "secrets.database=a"},
		"controlplane-postgresql": {
			"replicas=0", "volume.size=1Gi", "secrets.database=A b", "settings.TRUEUP_CONTROLPLANE_AGENT_TOKEN_LIFETIME=long",
		},
	}
	for _, set := range refused[name] {
		how := "--set"
		if strings.HasPrefix(set, "settings.") {
			how = "--set-string" // as args has them: it comes after --set
		}
		_, err := helmtest.Run(t, nil, append(args, how, set)...)
		require.ErrorContains(t, err, "don't meet the specifications of the schema", set)
	}
	render := func(set string) (string, map[string]*unstructured.Unstructured) {
		out, err := helmtest.Run(t, nil, append(args, "--set", set)...)
		require.NoError(t, err)
		return out, helmtest.Objects(t, out)
	}
	switch name {
	case "controlplane":
		text, told := render("secrets.controlplane=mine,volume.size=20Gi,volume.storageClassName=fast")
		claim := told["PersistentVolumeClaim trueup-controlplane"]
		require.Equal(t, map[string]any{
			"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "fast",
			"resources": map[string]any{"requests": map[string]any{"storage": "20Gi"}},
		}, claim.Object["spec"])
		require.Contains(t, text, "secretName: 'mine'")
	case "controlplane-postgresql":
		text, told := render("secrets.controlplane=mine,secrets.database=pg,replicas=3,settings.TRUEUP_CONTROLPLANE_AGENT_TOKEN_LIFETIME=72h")
		require.EqualValues(t, 3, *deploymentOf(t, told).Spec.Replicas)
		require.Contains(t, text, "secretName: 'mine'")
		require.Contains(t, text, "secretName: 'pg'")
		require.Contains(t, variables(t, told)["TRUEUP_CONTROLPLANE_DATABASE"], "Name:pg,")
		require.NotContains(t, text, "trueup-controlplane-database")
	}
}

func valuesOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(charts, name, "values.yaml"))
	require.NoError(t, err)
	return string(text)
}

func deploymentOf(t *testing.T, all map[string]*unstructured.Unstructured) (d appsv1.Deployment) {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == "Deployment" {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &d, true))
		}
	}
	require.Len(t, d.Spec.Template.Spec.Containers, 1)
	return d
}

// variables are the environment of a program; what comes from elsewhere is printed.
func variables(t *testing.T, all map[string]*unstructured.Unstructured) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, v := range containerOf(t, all).Env {
		found[v.Name] = v.Value
		if v.ValueFrom != nil {
			found[v.Name] = v.ValueFrom.String()
		}
	}
	return found
}

func containerOf(t *testing.T, all map[string]*unstructured.Unstructured) corev1.Container {
	t.Helper()
	return deploymentOf(t, all).Spec.Template.Spec.Containers[0]
}
