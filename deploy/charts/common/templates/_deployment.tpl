{{- /* Replicas of which each does its share or waits for its turn; the arguments are the context and what their pods have. */ -}}
{{- define "common.deployment" -}}
{{- $context := index . 0 -}}
{{- $pod := index . 1 -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "common.name" $context }}
  namespace: {{ $context.Release.Namespace }}
  labels: {{- include "common.selector" $context | nindent 4 }}
spec:
  replicas: {{ $context.Values.replicas }}
  selector:
    matchLabels: {{- include "common.selector" $context | nindent 6 }}
  template:
    metadata:
      labels: {{- include "common.selector" $context | nindent 8 }}
    spec:
      {{- include "common.pod" $context | nindent 6 }}
      # One that waits for its turn is of use only where the other is not.
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "common.selector" $context | nindent 14 }}
      {{- $pod | nindent 6 }}
{{- end -}}

{{- /* What a pod has that needs nothing of its node. The chart's own environment, mounts and volumes are templates named after it. */ -}}
{{- define "common.unprivileged" -}}
securityContext:
  runAsNonRoot: true
  {{- if not .Values.openshift.enabled }}
  # OpenShift chooses a user of the namespace's own.
  runAsUser: 65532
  runAsGroup: 65532
  # Reads the files of the volumes.
  fsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: {{ .Chart.Name }}
    {{- include "common.container" . | nindent 4 }}
    env:
      {{- include "common.environment" . | nindent 6 }}
      {{- with include (printf "%s.environment" .Chart.Name) . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
    securityContext:
      {{- include "common.confined" . | nindent 6 }}
    {{- with print (include (printf "%s.mounts" .Chart.Name) .) (include "common.cosiMount" .) | trim }}
    volumeMounts:
      {{- . | nindent 6 }}
    {{- end }}
  {{- with include "common.cosiSidecar" . }}
  {{- . | nindent 2 }}
  {{- end }}
{{- with print (include (printf "%s.volumes" .Chart.Name) .) (include "common.cosiVolume" .) | trim }}
volumes:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "common.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* The certificates that those of the backend are signed by. */ -}}
{{- define "common.caMount" -}}
{{- if .Values.caBundle.configMap }}
- {name: ca, mountPath: /etc/ca-bundle, readOnly: true}
{{- end }}
{{- end -}}

{{- define "common.caVolume" -}}
{{- if .Values.caBundle.configMap }}
- name: ca
  configMap:
    name: {{ .Values.caBundle.configMap }}
    items:
      - {key: {{ .Values.caBundle.key }}, path: ca.crt}
{{- end }}
{{- end -}}
