package program_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// envTemplate renders each variable once. Its value comes from env, then from the settings, then from the chart.
// Its marks stand for the defaults of the settings, for what an argument has set, and for the volumes and
// variables of the base.
const envTemplate = `
        {{- $given := list }}
        {{- range .Values.env }}
        {{- if has .name $given }}{{ fail (printf "env: %s: is there twice, must be there once" .name) }}{{ end }}
        {{- $given = append $given .name }}
        {{- end }}
        {{- $standard := dictCHART_STANDARD }}
        {{- range $name, $value := .Values.settings }}
        {{- if and (has $name $given) (ne (toString $value) (get $standard $name)) }}
        {{- fail (printf "settings.%s: is also in env, must be in one of them" $name) }}
        {{- end }}
        {{- if and (eq (toString $value) "") (not (has $name $given)) }}
        {{- fail (printf "settings.%s: is required, here or in env" $name) }}
        {{- end }}
        {{- end }}
        {{- range .Values.env }}
        {{- if and (hasKey $standard .name) (eq (get $standard .name) "") (not .valueFrom) (not .value) }}
        {{- fail (printf "env: %s: is empty, must have a value" .name) }}
        {{- end }}
        {{- end }}
        {{- $all := concat (keys .Values.settings) $given }}CHART_FIXED
        {{- if not (has "GOMEMLIMIT" $all) }}
        {{- with include "trueup.goMemoryLimit" (dig "limits" "memory" "" .Values.resources) }}
        - name: GOMEMLIMIT
          value: {{ . | quote }}
        {{- end }}
        {{- end }}
        {{- range $name := keys .Values.settings | sortAlpha }}
        {{- if not (has $name $given) }}
        - name: {{ $name | quote }}
          value: {{ include "trueup.variable" (dict "root" $ "name" $name) | quote }}
        {{- end }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}`

// helpersText computes nine tenths of a limit of memory, rounded as package installation does it. Of what
// it cannot read it is empty, and what is no quantity is refused by the schema. The others say what a variable
// is, and which folder and port of the pod follow from it: the process and the pod have the same. Names of
// templates are global in a release of several charts.
const helpersText = `{{- define "trueup.goMemoryLimit" -}}
{{- /* A number of a file is a float, which prints as 1e+09. */ -}}
{{- $text := ternary (toString (int64 .)) (toString .) (kindIs "float64" .) -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $text -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if and $number (hasKey $factors $unit) -}}
{{- mul (div (mulf (float64 $number) (float64 (get $factors $unit)) | floor | int64) 10) 9 -}}
{{- end -}}
{{- end -}}

{{- /* Where the variable "name" is given. */ -}}
{{- define "trueup.place" -}}
{{- $place := printf "settings.%s" .name -}}
{{- range .root.Values.env }}{{ if eq .name $.name }}{{ $place = printf "env: %s" .name }}{{ end }}{{ end -}}
{{- $place -}}
{{- end -}}

{{- /* The value of the variable "name"; empty: it is not given. */ -}}
{{- define "trueup.variable" -}}
{{- $text := "" -}}
{{- if hasKey .root.Values.settings .name -}}
{{- $value := get .root.Values.settings .name -}}
{{- /* A whole number of a file arrives as a float, which prints as 4e+08. */ -}}
{{- if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ $value = int64 $value }}{{ end }}{{ end -}}
{{- $text = tpl (toString $value) .root -}}
{{- end -}}
{{- range .root.Values.env -}}
{{- if eq .name $.name -}}
{{- if hasKey . "valueFrom" }}{{ fail (printf "env: %s: has valueFrom, must have a value: the pod goes by it" .name) }}{{ end -}}
{{- $text = .value -}}
{{- end -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- /* Where a volume is mounted: the variable "name" is its folder, or with "inside" what is in it. */ -}}
{{- define "trueup.folder" -}}
{{- $path := include "trueup.variable" . -}}
{{- if not $path -}}
{{- .standard -}}
{{- else -}}
{{- $folder := ternary (dir (clean $path)) (clean $path) (hasKey . "inside") -}}
{{- if not (regexMatch "^(/[^/:$]+)+$" $folder) -}}
{{- $such := ternary (printf "%s/%s" .standard (get . "inside")) .standard (hasKey . "inside") -}}
{{- fail (printf "%s: is %q, must be a path such as %s: a volume is there" (include "trueup.place" .) $path $such) -}}
{{- end -}}
{{- if and .key (ne (base $path) .key) -}}
{{- fail (printf "%s: is %q, must end with /%s, the key of the Secret" (include "trueup.place" .) $path .key) -}}
{{- end -}}
{{- $folder -}}
{{- end -}}
{{- end -}}

{{- /* The port of the probes: of the variable "name", an address, else of the variable "port". */ -}}
{{- define "trueup.port" -}}
{{- $text := toString .standard -}}
{{- $address := include "trueup.variable" . -}}
{{- $from := .name -}}
{{- if $address -}}
{{- if not (regexMatch "^(|0[.]0[.]0[.]0|\\[::\\]|[$][(][A-Za-z0-9_]+[)]):[0-9]+$" $address) -}}
{{- fail (printf "%s: is %q, must be an address such as :%v: the probes come from outside of the pod" (include "trueup.place" .) $address .standard) -}}
{{- end -}}
{{- $text = regexFind "[0-9]+$" $address -}}
{{- else if .port -}}
{{- $from = .port -}}
{{- $text = include "trueup.variable" (dict "root" .root "name" .port) | default $text -}}
{{- end -}}
{{- if or (lt (atoi $text) 1) (gt (atoi $text) 65535) -}}
{{- fail (printf "%s: has the port %s, must have one from 1 to 65535" (include "trueup.place" (dict "root" .root "name" $from)) $text) -}}
{{- end -}}
{{- atoi $text -}}
{{- end -}}

{{- /* Refuses the variable "name" if it is a URL of plain http to another machine, unless the variable "allow" is true,
as the program does. What the chart cannot see is left to the program. */ -}}
{{- define "trueup.encrypted" -}}
{{- $seen := true -}}
{{- range .root.Values.env }}{{ if and (hasKey . "valueFrom") (has .name (list $.name $.allow)) }}{{ $seen = false }}{{ end }}{{ end -}}
{{- if $seen -}}
{{- $url := include "trueup.variable" . -}}
{{- $host := trimPrefix "://" (regexFind "://[^/?#]*" $url) -}}
{{- $here := regexMatch "^(?i)(localhost[.]?|127([.][0-9]+){3}|\\[[0:]*:(0*1|ffff:127([.][0-9]+){3})\\])(:[0-9]*)?$" $host -}}
{{- $allowed := "" -}}
{{- if .allow }}{{ $allowed = include "trueup.variable" (dict "root" .root "name" .allow) }}{{ end -}}
{{- if and (regexMatch "^(?i)http://" $url) (not $here) (not (contains "$(" $host)) (not (regexMatch "^(1|[tT]|true|True|TRUE)$" $allowed)) -}}
{{- fail (printf "%s: is %q, must be %s" (include "trueup.place" .) (ternary "(hidden)" $url (regexMatch "[@?]" $url)) .must) -}}
{{- end -}}
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
    "uuid": {"type": "string", "pattern": "^(|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$|[{][{]"},
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
	settingRow = regexp.MustCompile("(?m)^\\| `[^`]*--([a-z0-9-]+) ?([a-zA-Z0-9]*)` \\| `([A-Z0-9_]+)` \\| (.*) \\|$")
	durations  = regexp.MustCompile(`\(default ([0-9]+(ms|s|m|h))+\)`)
	wholes     = regexp.MustCompile(`\(default [0-9]+\)`)
	switches   = regexp.MustCompile(`\(default (true|false)\)`)
)

// row is a setting in the manual of a program.
type row struct{ flag, kind, variable, usage string }

// manual is what the program says of the settings that run it.
func (h habit) manual(t *testing.T, path string) (rows []row) {
	t.Helper()
	dir := t.TempDir()
	code, _, stderr := call(t, path, "man", "--markdown", dir)
	require.Zero(t, code, stderr)
	page, err := os.ReadFile(filepath.Join(dir, h.name+".md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n## "+h.name+"\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, cells := range settingRow.FindAllStringSubmatch(section, -1) {
		rows = append(rows, row{cells[1], cells[2], cells[3], cells[4]})
	}
	require.Greater(t, len(rows), 5, "%s has settings", h.name)
	return rows
}

// settings are the variables of the program that run it, with what each must be, as the manual of the
// program has them. A setting that the program parses by itself is a string there, and goes by its default.
// Those of the base that the program leaves to a library are texts.
func (h habit) settings(t *testing.T, path string, rows []row, base []string) string {
	t.Helper()
	kinds := map[string]string{}
	refer := func(kind string) string { return fmt.Sprintf(`{"$ref": "#/definitions/%s"}`, kind) }
	for _, name := range slices.Concat(runtimeVariables, base) {
		kinds[name] = refer("text")
	}
	for _, row := range rows {
		name := row.variable
		switch {
		case row.kind == "duration" || durations.MatchString(row.usage):
			kinds[name] = refer("duration")
		case row.kind == "" || switches.MatchString(row.usage):
			kinds[name] = refer("switch")
		case row.kind == "float":
			kinds[name] = refer("number")
		case row.kind == "int" || wholes.MatchString(row.usage):
			kinds[name] = refer("whole")
			if least, most := h.bounds(t, path, row.flag); most != "" {
				kinds[name] = fmt.Sprintf(`{"allOf": [%s, {"type": ["integer", "string"], "minimum": %s, "maximum": %s}]}`, refer("whole"), least, most)
			}
		case strings.HasPrefix(row.usage, "UUID "):
			kinds[name] = refer("uuid")
		case strings.HasPrefix(row.usage, "URL "), strings.HasSuffix(name, "BASE_URL"), strings.HasSuffix(name, "CONTROL_URL"):
			kinds[name] = refer("url")
		default:
			kinds[name] = refer("text")
			if choices := h.choices(t, path, row.flag); len(choices) > 0 {
				list, err := json.Marshal(append(choices, ""))
				require.NoError(t, err)
				enum := strings.ReplaceAll(string(list), ",", ", ")
				kinds[name] = fmt.Sprintf(`{"anyOf": [{"enum": %s}, {"type": "string", "pattern": "[{][{]"}]}`, enum)
			}
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines, fmt.Sprintf(`        %q: %s`, name, kinds[name]))
	}
	return strings.Join(lines, ",\n")
}

// choice finds the words of which a setting must be one in the error of a program.
var choice = regexp.MustCompile(`must be ([a-z]+(?:, [a-z]+)* or [a-z]+)(?:[;,]|\n)`)

// choices are the values that the setting of a flag may have, as the check of the program names them when it
// gets another one: none, if it takes others or any text. Where it takes them in capitals, too, these are among them.
func (h habit) choices(t *testing.T, path, flag string) (words []string) {
	t.Helper()
	if slices.Contains(h.free, flag) {
		return nil
	}
	refused := func(value string) string {
		args, env := h.beside(t, flag)
		_, _, stderr := callWith(t, env, path, append(args, "--"+flag+"="+value)...)
		_, text, _ := strings.Cut(stderr, "--"+flag+`: is "`+value+`"`)
		return text
	}
	found := choice.FindStringSubmatch(refused("!nonsense!"))
	if found == nil {
		return nil
	}
	words = regexp.MustCompile(`, | or `).Split(found[1], -1)
	for _, word := range slices.Clone(words) {
		if capitals := strings.ToUpper(word); refused(capitals) == "" {
			words = append(words, capitals)
		}
	}
	return words
}

// within finds the bounds of a whole number in the error of a program.
var within = regexp.MustCompile(`must be a whole number from ([0-9]+) to ([0-9]+)`)

// bounds returns the lowest and the highest value of a setting that is a whole number, as the check of the program names
// them, and nothing if the check names none.
func (h habit) bounds(t *testing.T, path, flag string) (least, most string) {
	t.Helper()
	args, env := h.beside(t, flag)
	_, _, stderr := callWith(t, env, path, append(args, "--"+flag+"=-1000000000")...)
	if found := within.FindStringSubmatch(stderr); found != nil {
		return found[1], found[2]
	}
	return "", ""
}

// beside is how the program is run to see whether it refuses one flag: it ends in either case.
func (h habit) beside(t *testing.T, flag string) (args, env []string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(sesame), 0o600))
	stop := []string{"--kubeconfig", filepath.Join(dir, "none")}
	if h.alone {
		stop = []string{"--database", filepath.Join(dir, "none", "db")}
	}
	for pair := range slices.Chunk(slices.Concat(inDir(h.args, dir), stop), 2) {
		if pair[0] != "--"+flag {
			args = append(args, pair...)
		}
	}
	return args, inDir(h.env, dir)
}

// unencrypted finds in the error of a program what the URL of a secret must be, and the variable that allows any.
var unencrypted = regexp.MustCompile(`^must be ((?:[^;\n]*\bhttp on this machine\b[^;\n]*)(?:; ([A-Z0-9_]+)=true allows it)?)`)

// encrypted are the templates that refuse the URLs which the program refuses, in its words: it gets each URL as one of
// plain HTTP to another machine.
func (h habit) encrypted(t *testing.T, path string, rows []row) (checks string) {
	t.Helper()
	for _, row := range rows {
		if !strings.Contains(row.usage, "URL") && !strings.HasSuffix(row.variable, "_URL") {
			continue
		}
		const plain = "http://elsewhere.example.com"
		args, env := h.beside(t, row.flag)
		_, _, stderr := callWith(t, env, path, append(args, "--"+row.flag+"="+plain)...)
		_, text, _ := strings.Cut(stderr, "--"+row.flag+`: is "`+plain+`", `)
		if found := unencrypted.FindStringSubmatch(text); found != nil {
			checks += fmt.Sprintf("\n        {{- include \"trueup.encrypted\" (dict \"root\" $ \"name\" %q \"allow\" %q \"must\" %q) }}",
				row.variable, found[2], found[1])
		}
	}
	return checks
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
# Variables as in a container: [{name: N, valueFrom: {secretKeyRef: {name: S, key: K}}}]. One that is here takes the
# place of the setting, also of a required one.
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
	rows := h.manual(t, path)
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
			template, values, set = h.deployment(t, o, name, rows, h.encrypted(t, path, rows), released)
			known = h.settings(t, path, rows, set)
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
	t *testing.T, o unstructured.Unstructured, name string, rows []row, encrypted string, released func(string) string,
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

	pod := podOf(d, rows, settings)
	text = pod.follow(t, text)
	var own strings.Builder
	for _, of := range fixed {
		variable := strings.TrimSuffix(indented(released(marshal(t, []any{of})), "        "), "\n")
		fmt.Fprintf(&own, "\n        {{- if not (has %q $all) }}\n%s\n        {{- end }}", of.(map[string]any)["name"], variable)
	}
	env := "env:" + strings.NewReplacer("CHART_STANDARD", pod.standard, "CHART_FIXED", pod.checks+encrypted+own.String()).Replace(envTemplate)
	for _, replace := range [][2]string{
		{`AAA: ` + podMark, podTemplate},
		{"env: " + envMark, env},
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

// following is what a pod must have as its settings have it.
type following struct {
	standard string            // the defaults of the settings, as arguments of dict
	checks   string            // templates that refuse settings
	parts    map[string]string // lines of the Deployment, and what stands for them
}

// podOf finds the settings by which volumes and the port of the probes go, and those that an argument of the
// container sets.
func podOf(d appsv1.Deployment, rows []row, settings map[string]string) following {
	f := following{parts: map[string]string{}}
	container := d.Spec.Template.Spec.Containers[0]
	var mounts []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		f.standard += fmt.Sprintf(" %q `%s`", name, settings[name])
	}
	secret := map[string]bool{}
	for _, volume := range d.Spec.Template.Spec.Volumes {
		secret[volume.Name] = volume.Secret != nil
	}
	for _, mount := range container.VolumeMounts {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			inside, ok := strings.CutPrefix(settings[name]+"/", mount.MountPath+"/")
			if !ok {
				continue
			}
			more := ""
			if inside = strings.TrimSuffix(inside, "/"); inside != "" {
				more = fmt.Sprintf(" %q %q", "inside", inside)
			}
			if secret[mount.Name] {
				more += fmt.Sprintf(" %q %q", "key", inside)
			}
			folder := fmt.Sprintf(`(include "trueup.folder" (dict "root" $ "name" %q "standard" %q%s))`, name, mount.MountPath, more)
			mounts = append(mounts, fmt.Sprintf("%q %s", name, folder))
			f.parts["mountPath: "+mount.MountPath+"\n"] = fmt.Sprintf("mountPath: {{ get $folders %q | quote }}\n", name)
		}
	}
	if len(mounts) > 0 {
		f.checks += "\n        {{- $folders := dict " + strings.Join(mounts, " ") + ` }}
        {{- range $name, $folder := $folders }}
        {{- range $other, $above := omit $folders $name }}
        {{- if hasPrefix (printf "%s/" $above) (printf "%s/" $folder) }}
        {{- fail (printf "%s: is in %s, must be elsewhere: that is the volume of %s" (include "trueup.place" (dict "root" $ "name" $name)) $above $other) }}
        {{- end }}
        {{- end }}
        {{- end }}`
	}
	address, port := "", ""
	for _, row := range rows {
		for _, arg := range container.Args {
			if strings.HasPrefix(arg, "--"+row.flag+"=") {
				f.checks += fmt.Sprintf(`
        {{- if has %q $all }}
        {{- fail (printf "%%s: cannot be set: the pod goes by the argument %s" (include "trueup.place" (dict "root" $ "name" %q))) }}
        {{- end }}`, row.variable, arg, row.variable)
			}
		}
		switch row.flag {
		case "health-probe-bind-address":
			address = row.variable
		case "rpc-port":
			port = row.variable
		}
	}
	if address != "" {
		standard := container.Ports[0].ContainerPort
		f.parts[fmt.Sprintf("containerPort: %d\n", standard)] = fmt.Sprintf(
			"containerPort: {{ include \"trueup.port\" (dict \"root\" $ \"name\" %q \"port\" %q \"standard\" %d) }}\n", address, port, standard)
	}
	return f
}

// follow puts templates into the text of a Deployment.
func (f following) follow(t *testing.T, text string) string {
	t.Helper()
	for part, template := range f.parts {
		require.Equal(t, 1, strings.Count(text, part), "%s in %s", part, text)
		text = strings.Replace(text, part, template, 1)
	}
	return text
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
			standard := variables(t, want)
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
			once(t, entry.Name(), args, needed, standard)
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
			"settings.STARFORM_CLUSTER_ID=9F1C3A52-0000-4000-8000-000000000001",
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
	for _, set := range map[string][]string{
		"shuttle": {"settings.STARFORM_SOFT_LIMIT=0", "settings.STARFORM_MAX_DELETE_PERCENT=101"},
		"krane":   {"settings.KRANE_K8S_QPS=0", "settings.KRANE_MAX_DELETE_PERCENT=200"},
	}[name] {
		_, err := helmtest.Run(t, nil, append(args, "--set", set)...)
		require.ErrorContains(t, err, "don't meet the specifications of the schema", set)
	}
	for _, set := range map[string][]string{
		"shuttle":  {"settings.STARFORM_SOFT_LIMIT=1", "settings.STARFORM_MAX_DELETE_PERCENT=100"},
		"krane":    {"settings.KRANE_K8S_QPS=1,settings.KRANE_K8S_BURST=1"},
		"nodepool": {"settings.STRATOS_AWS_RATE_LIMIT_QPS=0.5"},
	}[name] {
		_, err := helmtest.Run(t, nil, append(args, "--set", set)...)
		require.NoError(t, err, set)
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

// once gives variables in env: each is rendered once, and a required one needs no setting. One that is given
// twice is refused.
func once(t *testing.T, name string, args, needed []string, standard map[string]string) {
	t.Helper()
	render := func(more ...string) (string, error) { return helmtest.Run(t, nil, slices.Concat(args, more)...) }
	entry := func(n int, name string) []string {
		return []string{
			"--set", fmt.Sprintf("env[%d].name=%s,env[%d].valueFrom.secretKeyRef.name=mine,env[%d].valueFrom.secretKeyRef.key=k", n, name, n, n),
		}
	}
	alone := slices.Clone(args[:3])
	for n, variable := range needed {
		_, err := render(entry(0, variable)...)
		require.ErrorContains(t, err, "settings."+variable+": is also in env, must be in one of them")
		_, err = render("--set", "env[0].name="+variable, "--set-string", "settings."+variable+"=,env[0].value=")
		require.ErrorContains(t, err, "env: "+variable+": is empty, must have a value")
		alone = append(alone, entry(n, variable)...)
	}
	out, err := helmtest.Run(t, nil, alone...)
	require.NoError(t, err)
	told := helmtest.Objects(t, out)
	require.Len(t, containerOf(t, told).Env, len(variables(t, told)), "each is there once")
	for _, variable := range needed {
		require.Contains(t, variables(t, told)[variable], "Name:mine")
	}
	_, err = render(slices.Concat(entry(0, "MORE"), entry(1, "MORE"))...)
	require.ErrorContains(t, err, "env: MORE: is there twice, must be there once")

	// What the chart sets by itself gives way, too.
	require.Contains(t, standard, "GOMEMLIMIT")
	for _, variable := range slices.Sorted(maps.Keys(standard)) {
		if slices.Contains(needed, variable) {
			continue
		}
		value := "another"
		if path.IsAbs(standard[variable]) {
			value = "/other" + standard[variable]
		}
		out, err := render("--set", "env[0].name="+variable+",env[0].value="+value)
		require.NoError(t, err, variable)
		told := helmtest.Objects(t, out)
		require.Len(t, containerOf(t, told).Env, len(variables(t, told)), variable)
		require.Equal(t, value, variables(t, told)[variable])
	}
	level := map[string]string{
		"application": "PLATTR", "controlplane": "TRUEUP_CONTROLPLANE", "controlplane-postgresql": "TRUEUP_CONTROLPLANE",
		"krane": "KRANE", "nodepool": "STRATOS", "shuttle": "STARFORM",
	}[name] + "_LOG_LEVEL"
	for _, value := range []string{"debug", "WARN", "{{ .Values.global.level }}"} {
		out, err := render("--set", "global.level=error", "--set-literal", "settings."+level+"="+value)
		require.NoError(t, err, value)
		require.Equal(t, strings.Replace(value, "{{ .Values.global.level }}", "error", 1), variables(t, helmtest.Objects(t, out))[level])
	}
	_, err = render("--set", "settings."+level+"=loud")
	require.ErrorContains(t, err, "/settings/"+level)
	require.ErrorContains(t, err, "'debug', 'info', 'warn', 'error'")
}

// TestThePodGoesByItsSettings: volumes and ports are where the settings have the folders and the address of the
// probes. What no pod can have is refused.
func TestThePodGoesByItsSettings(t *testing.T) {
	t.Parallel()
	required := map[string]string{
		"krane":       "settings.KRANE_CLUSTER_REGION=eu,settings.KRANE_CONTROL_URL=https://c",
		"shuttle":     "settings.STARFORM_REGION=eu,settings.STARFORM_STARBASE_URL=https://s,settings.STARFORM_CLUSTER_ID=" + cluster,
		"application": "settings.BASE_DOMAIN=example.com", "nodepool": "settings.AWS_REGION=eu,settings.STRATOS_CLUSTER_NAME=c",
	}
	render := func(t *testing.T, chart, set string) (string, error) {
		t.Helper()
		return helmtest.Run(t, nil, "template", "r", filepath.Join(charts, chart), "--set", required[chart], "--set", set)
	}
	for _, test := range []struct{ chart, set, ports, mounts string }{
		{"krane", "", "8070", "token=/var/run/krane state=/var/lib/krane"},
		{"krane", "settings.KRANE_STATE_DIR=/data/k/,settings.KRANE_RPC_PORT=9000", "9000", "token=/var/run/krane state=/data/k"},
		{"krane", "settings.KRANE_TOKEN_FILE=/t/token,settings.KRANE_STATE_DIR=null", "8070", "token=/t state=/var/lib/krane"},
		{
			"krane", "settings.KRANE_HEALTH_PROBE_BIND_ADDRESS=[::]:9999,settings.KRANE_RPC_PORT=1", "9999",
			"token=/var/run/krane state=/var/lib/krane",
		},
		{"krane", "env[0].name=KRANE_STATE_DIR,env[0].value=/e", "8070", "token=/var/run/krane state=/e"},
		{"shuttle", "settings.STARFORM_METRICS_ADDR=:9", "9", "token=/var/run/starform state=/var/lib/shuttle"},
		{"shuttle", "settings.STARFORM_SNAPSHOT_WAL_DIR=/data/{{ .Release.Name }}/x", "8080", "token=/var/run/starform state=/data/r"},
		{"application", "settings.PLATTR_HEALTH_PROBE_BIND_ADDRESS=0.0.0.0:9000", "9000", ""},
		{"nodepool", "env[0].name=STRATOS_HEALTH_PROBE_BIND_ADDRESS,env[0].value=:9000", "9000", ""},
	} {
		t.Run(test.chart+" "+test.set, func(t *testing.T) {
			t.Parallel()
			out, err := render(t, test.chart, test.set)
			require.NoError(t, err)
			container := containerOf(t, helmtest.Objects(t, out))
			var ports, mounts []string
			for _, port := range container.Ports {
				ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
			}
			for _, mount := range container.VolumeMounts {
				mounts = append(mounts, mount.Name+"="+mount.MountPath)
			}
			require.Equal(t, test.ports, strings.Join(ports, " "))
			require.Equal(t, test.mounts, strings.Join(mounts, " "))
			require.Equal(t, container.Ports[0].Name, container.ReadinessProbe.HTTPGet.Port.StrVal)
		})
	}
	for _, test := range []struct{ chart, set, want string }{
		{"krane", "settings.KRANE_STATE_DIR=data", `settings.KRANE_STATE_DIR: is "data", must be a path such as /var/lib/krane`},
		{"krane", "settings.KRANE_STATE_DIR=/", `settings.KRANE_STATE_DIR: is "/", must be a path`},
		{"krane", "settings.KRANE_STATE_DIR=/var/run/krane/state", `settings.KRANE_STATE_DIR: is in /var/run/krane, must be elsewhere`},
		{"krane", "settings.KRANE_STATE_DIR=/var/run", `settings.KRANE_TOKEN_FILE: is in /var/run, must be elsewhere`},
		{"krane", "settings.KRANE_TOKEN_FILE=/t/other", `settings.KRANE_TOKEN_FILE: is "/t/other", must end with /token, the key of the Secret`},
		{"krane", "env[0].name=KRANE_STATE_DIR,env[0].valueFrom.a=b", "env: KRANE_STATE_DIR: has valueFrom, must have a value"},
		{"krane", "settings.KRANE_HEALTH_PROBE_BIND_ADDRESS=127.0.0.1:9", `is "127.0.0.1:9", must be an address such as :8070`},
		{"krane", "settings.KRANE_RPC_PORT=70000", "settings.KRANE_RPC_PORT: has the port 70000, must have one from 1 to 65535"},
		{"krane", "settings.KRANE_POD_SECURITY=loose", "'restricted', 'baseline'"},
		{"shuttle", "settings.STARFORM_SNAPSHOT_WAL_DIR=/data", "must be a path such as /var/lib/shuttle/snapshots"},
		{"shuttle", "settings.STARFORM_TRANSPORT=pigeon", "'poll', 'stream'"},
		{"application", "settings.PLATTR_HEALTH_PROBE_BIND_ADDRESS=:0", "has the port 0, must have one from 1 to 65535"},
		{"nodepool", "settings.STRATOS_CLOUD_PROVIDER=gcp", "'aws', 'local', 'fake'"},
		{
			"controlplane", "settings.TRUEUP_CONTROLPLANE_LISTEN=:1",
			"settings.TRUEUP_CONTROLPLANE_LISTEN: cannot be set: the pod goes by the argument --listen=:8080",
		},
		{"controlplane", "env[0].name=TRUEUP_CONTROLPLANE_DATABASE,env[0].value=x", "env: TRUEUP_CONTROLPLANE_DATABASE: cannot be set"},
		{
			"krane", "settings.KRANE_CONTROL_URL=http://c", `settings.KRANE_CONTROL_URL: is "http://c", must be a URL of https, or of http on this machine: ` +
				`the token is not encrypted; KRANE_ALLOW_HTTP=true allows it`,
		},
		{"krane", "settings.KRANE_CONTROL_URL=HTTP://{{ .Release.Name }}:80/x,settings.KRANE_ALLOW_HTTP=false", `KRANE_CONTROL_URL: is "HTTP://r:80/x", must be`},
		{"krane", "settings.KRANE_VAULT_URL=http://user:secret@localhost", `settings.KRANE_VAULT_URL: is "(hidden)", must be a URL of https`},
		{"krane", "settings.KRANE_VAULT_URL=http://127.0.0.1.example.com", `settings.KRANE_VAULT_URL: is "http://127.0.0.1.example.com", must be`},
		{"shuttle", "settings.STARFORM_STARBASE_URL=http://s", "the token is not encrypted; STARFORM_ALLOW_HTTP=true allows it"},
		{
			"shuttle", "settings.STARFORM_STARBASE_URL=null,env[0].name=STARFORM_STARBASE_URL,env[0].value=http://localhost.s",
			`env: STARFORM_STARBASE_URL: is "http://localhost.s", must be`,
		},
		{
			"controlplane", "settings.TRUEUP_CONTROLPLANE_OIDC_ISSUER=http://[2001:db8::1]",
			`is "http://[2001:db8::1]", must be a URL of https, or of http on this machine, such as https://login.example.com`,
		},
		{"controlplane-postgresql", "settings.TRUEUP_CONTROLPLANE_EXTERNAL_URL=http://c", "settings.TRUEUP_CONTROLPLANE_EXTERNAL_URL: is"},
	} {
		t.Run(test.chart+" "+test.set, func(t *testing.T) {
			t.Parallel()
			_, err := render(t, test.chart, test.set)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestAChartTakesTheURLsThatItsProgramTakes: plain HTTP on the same machine, or where a switch allows it, and what
// only the pod knows.
func TestAChartTakesTheURLsThatItsProgramTakes(t *testing.T) {
	t.Parallel()
	const secret = "env[0].valueFrom.secretKeyRef.name=s,env[0].valueFrom.secretKeyRef.key=k"
	for _, set := range []string{
		"settings.KRANE_CONTROL_URL=http://localhost:8080", "settings.KRANE_CONTROL_URL=http://LocalHost./x", "settings.KRANE_CONTROL_URL=http://127.9.9.9",
		"settings.KRANE_CONTROL_URL=http://[::1]:80/", "settings.KRANE_CONTROL_URL=http://[::ffff:127.0.0.1]", "settings.KRANE_CONTROL_URL=https://http://c",
		"settings.KRANE_CONTROL_URL=http://c,settings.KRANE_ALLOW_HTTP=true", "settings.KRANE_CONTROL_URL=http://$(HOST)/",
		"settings.KRANE_CONTROL_URL=http://c,env[0].name=KRANE_ALLOW_HTTP,env[0].value=t",
		"settings.KRANE_CONTROL_URL=http://c,env[0].name=KRANE_ALLOW_HTTP," + secret, "settings.KRANE_CONTROL_URL=null,env[0].name=KRANE_CONTROL_URL," + secret,
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			out, err := helmtest.Run(
				t,
				nil,
				"template",
				"r",
				filepath.Join(charts, "krane"),
				"--set",
				"settings.KRANE_CLUSTER_REGION=eu",
				"--set",
				set,
			)
			require.NoError(t, err)
			require.Contains(t, out, "KRANE_CONTROL_URL")
		})
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
