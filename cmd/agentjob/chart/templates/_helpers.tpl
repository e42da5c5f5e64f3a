{{- define "thurkube.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "thurkube.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "thurkube.labels" -}}
{{ include "thurkube.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "thurkube.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* The address as Go reads it: an IPv6 host is in brackets. */ -}}
{{- define "thurkube.address" -}}
{{- $host := .Values.health.host -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- printf "%s:%d" $host (int .Values.health.port) -}}
{{- end -}}

{{- /* Nine tenths of a quantity in bytes; empty for one in another unit. */ -}}
{{- define "thurkube.goMemoryLimit" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $text -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if hasKey $factors $unit -}}
{{- mul (div (mulf (float64 $number) (float64 (get $factors $unit)) | floor | int64) 10) 9 -}}
{{- end -}}
{{- end -}}

{{- define "thurkube.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
{{- range $key, $value := .probe }}
{{ $key }}: {{ int $value }}
{{- end }}
{{- end -}}
