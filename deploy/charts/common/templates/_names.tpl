{{- define "common.chartName" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "common.name" -}}
{{- $chart := include "common.chartName" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $chart .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $chart | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The name of cluster-scoped objects. */ -}}
{{- define "common.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "common.name" .) -}}
{{- end -}}

{{- define "common.selector" -}}
app.kubernetes.io/name: {{ include "common.chartName" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "common.labels" -}}
{{- include "common.labelsOf" (list . (include "common.chartName" .)) -}}
{{- end -}}

{{- /* The labels of an object whose pods the selector does not match; the arguments are the context and the application's name. */ -}}
{{- define "common.labelsOf" -}}
{{- $context := index . 0 -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" $context.Chart.Name $context.Chart.Version | replace "+" "_")
  "app.kubernetes.io/name" (index . 1)
  "app.kubernetes.io/instance" $context.Release.Name
  "app.kubernetes.io/version" ($context.Chart.AppVersion | replace "+" "_")
  "app.kubernetes.io/managed-by" $context.Release.Service
  "app.kubernetes.io/part-of" "kube-provisioner"
-}}
{{- merge $own $context.Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "common.metadata" -}}
name: {{ include "common.name" . }}
namespace: {{ .Release.Namespace }}
labels: {{- include "common.labels" . | nindent 2 }}
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

{{- /* The number of shards; charts without replicas have no such value. */ -}}
{{- define "common.shards" -}}
{{- .Values.shards | default 1 | int -}}
{{- end -}}

{{- /* The entry of files/rights.yaml that applies. */ -}}
{{- define "common.mode" -}}
{{- if include "common.cosi" . -}}cosi-{{ include "common.cosi" . }}
{{- else if gt (include "common.shards" . | int) 1 -}}lease-sharded
{{- else -}}{{ .Values.coordination | default "lease" }}
{{- end -}}
{{- end -}}

{{- /* The common part of the names of journals. */ -}}
{{- define "common.worker" -}}
{{- if include "common.cosi" . }}{{ include "common.driver" . }}{{ else }}{{ .Values.provisionerName | replace "/" "-" }}{{ end -}}
{{- end -}}

{{- /* The names of the journals: of one shard, of the current number of shards, and of previous numbers. */ -}}
{{- define "common.journals" -}}
{{- $name := include "common.worker" . -}}
{{- $names := list -}}
{{- range $shards := concat (list 1 (include "common.shards" . | int)) (.Values.previousShards | default list) | uniq | sortAlpha -}}
{{- $shards := int $shards -}}
{{- range $shard := until $shards -}}
{{- $part := gt $shards 1 | ternary (printf "-%d-of-%d" $shard $shards) "" -}}
{{- $names = append $names (printf "%s-journal%s" $name $part) -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}
