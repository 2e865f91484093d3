{{- define "common.rbac" -}}
{{- $name := include "common.account" . -}}
{{- $clusterName := printf "%s-%s" .Release.Namespace $name -}}
{{- $rights := index (.Files.Get "files/rights.yaml" | fromYaml) (include "common.mode" .) -}}
{{- if eq (include "common.cosi" .) "sidecar" -}}
{{- $sidecar := include "common.cosiSidecarRights" . | fromYaml -}}
{{- $rights = dict "cluster" (concat $rights.cluster $sidecar.cluster) "namespace" (concat $rights.namespace $sidecar.namespace) -}}
{{- end -}}
{{- if .Values.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
  {{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- if .Values.rbac.create }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $clusterName }}
rules:
{{- range $rights.cluster }}
{{ include "common.rule" (list $ .) }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $clusterName }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $clusterName }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
rules:
{{- range $rights.namespace }}
{{ include "common.rule" (list $ .) }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
{{- end }}
{{- end -}}

{{- /* One rule. Names of journals and Leases are those of this provisioner or driver; those of other objects are every provisioner's. */ -}}
{{- define "common.rule" -}}
{{- $context := index . 0 -}}
{{- $rule := index . 1 -}}
{{- if and $rule.resourceNames (or (has "configmaps" $rule.resources) (has "leases" $rule.resources)) -}}
{{- $names := list (printf "%s%s" (include "common.cosi" $context | empty | ternary "" "cosi-sidecar-leader-") (include "common.worker" $context)) -}}
{{- if has "configmaps" $rule.resources -}}
{{- $names = include "common.journals" $context | fromJsonArray -}}
{{- end -}}
{{- $rule = merge (dict "resourceNames" $names) $rule -}}
{{- end -}}
{{- list $rule | toYaml -}}
{{- end -}}
