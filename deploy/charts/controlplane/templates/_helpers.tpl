{{- define "goMemoryLimit" -}}
{{- /* A number of a file is a float, which prints as 1e+09. */ -}}
{{- $text := ternary (toString (int64 .)) (toString .) (kindIs "float64" .) -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $text -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if and $number (hasKey $factors $unit) -}}
{{- mul (div (mulf (float64 $number) (float64 (get $factors $unit)) | floor | int64) 10) 9 -}}
{{- end -}}
{{- end -}}
