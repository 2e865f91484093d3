{{- /* The namespace; its argument is the context and the level of Pod Security. */ -}}
{{- define "common.namespace" -}}
{{- $context := index . 0 -}}
{{- $level := index . 1 -}}
{{- if $context.Values.namespace.create -}}
apiVersion: v1
kind: Namespace
metadata:
  name: {{ $context.Release.Namespace }}
  labels:
    pod-security.kubernetes.io/enforce: {{ $level }}
    pod-security.kubernetes.io/audit: {{ $level }}
    pod-security.kubernetes.io/warn: {{ $level }}
{{- end -}}
{{- end -}}

{{- define "common.podDisruptionBudget" -}}
{{- if gt (int .Values.replicas) 1 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "common.name" . }}
  namespace: {{ .Release.Namespace }}
spec:
  maxUnavailable: 1
  # A pod that is not ready does not keep its node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "common.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "common.networkPolicy" -}}
{{- if .Values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "common.name" . }}
  namespace: {{ .Release.Namespace }}
spec:
  podSelector:
    matchLabels: {{- include "common.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    # Metrics. The kubelet's probes come from the pod's own node, which no policy keeps out.
    - ports:
        - {protocol: TCP, port: 8080}
      {{- with .Values.networkPolicy.metricsFrom }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with .Values.networkPolicy.ingress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  egress:
    # The API server: its service, and what is behind it.
    - ports:
        {{- range .Values.networkPolicy.apiServerPorts }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- with .Values.networkPolicy.egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- define "common.monitoring" -}}
{{- if .Values.podMonitor.enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "common.name" . }}
  namespace: {{ .Release.Namespace }}
  {{- with .Values.podMonitor.labels }}
  labels: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector:
    matchLabels: {{- include "common.selector" . | nindent 6 }}
  podMetricsEndpoints:
    - port: admin
      interval: {{ .Values.podMonitor.interval }}
{{- end -}}
{{- end -}}
