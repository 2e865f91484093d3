{{- /* Replicas that share the work or wait for their turn. */ -}}
{{- define "common.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "common.metadata" . | nindent 2 }}
spec:
  replicas: {{ .Values.replicaCount }}
  {{- with .Values.updateStrategy }}
  strategy: {{- toYaml . | nindent 4 }}
  {{- end }}
  revisionHistoryLimit: {{ .Values.revisionHistoryLimit }}
  selector:
    matchLabels: {{- include "common.selector" . | nindent 6 }}
  template: {{- include "common.podTemplate" . | nindent 4 }}
{{- end -}}
