{{- define "common.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "common.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
{{- if ne (include "common.name" .) .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- end -}}

{{- define "common.account" -}}
{{- .Values.serviceAccount.name | default (include "common.name" .) -}}
{{- end -}}

{{- define "common.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* Which rights of files/rights.yaml apply. */ -}}
{{- define "common.mode" -}}
{{- if include "common.cosi" . -}}cosi-{{ include "common.cosi" . }}
{{- else if and (eq .Values.coordination "lease") (gt (int .Values.shards) 1) -}}lease-sharded
{{- else -}}{{ .Values.coordination }}
{{- end -}}
{{- end -}}

{{- /* After whom journals are named. */ -}}
{{- define "common.worker" -}}
{{- if include "common.cosi" . }}{{ include "common.driver" . }}{{ else }}{{ .Values.provisionerName | replace "/" "-" }}{{ end -}}
{{- end -}}

{{- /* The names of the journals: of one shard, of these shards, and of former ones. */ -}}
{{- define "common.journals" -}}
{{- $name := include "common.worker" . -}}
{{- $names := list -}}
{{- range $shards := concat (list 1 (int .Values.shards)) .Values.formerShards | uniq | sortAlpha -}}
{{- $shards := int $shards -}}
{{- range $shard := until $shards -}}
{{- $part := gt $shards 1 | ternary (printf "-%d-of-%d" $shard $shards) "" -}}
{{- $names = append $names (printf "%s-journal%s" $name $part) -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}
