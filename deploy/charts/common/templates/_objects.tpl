{{- define "common.namespace" -}}
{{- if .Values.namespace.create -}}
{{- $level := include "common.podSecurity" . -}}
apiVersion: v1
kind: Namespace
metadata:
  name: {{ .Release.Namespace }}
  labels:
    {{- include "common.labels" . | nindent 4 }}
    pod-security.kubernetes.io/enforce: {{ $level }}
    pod-security.kubernetes.io/audit: {{ $level }}
    pod-security.kubernetes.io/warn: {{ $level }}
{{- end -}}
{{- end -}}

{{- define "common.podDisruptionBudget" -}}
{{- if gt (int .Values.replicaCount) 1 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "common.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready does not prevent its node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "common.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "common.networkPolicy" -}}
{{- if .Values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "common.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- include "common.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    # Metrics. The kubelet's probes come from the pod's own node, which every policy permits.
    - ports:
        - {protocol: TCP, port: {{ .Values.httpPort }}}
      {{- with .Values.networkPolicy.metricsFrom }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with .Values.networkPolicy.ingress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  egress:
    # The API server: its Service and its endpoints.
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
  {{- include "common.metadata" . | nindent 2 }}
    {{- with .Values.podMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels: {{- include "common.selector" . | nindent 6 }}
  podMetricsEndpoints:
    - port: admin
      interval: {{ .Values.podMonitor.interval }}
{{- end -}}
{{- end -}}
