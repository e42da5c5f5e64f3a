{{- define "trueup.goMemoryLimit" -}}
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
