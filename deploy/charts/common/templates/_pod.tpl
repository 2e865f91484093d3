{{- /* What every provisioner is told. Not arguments, so that commands by kubectl exec need none. */ -}}
{{- define "common.environment" -}}
- {name: PROVISIONER_NAME, value: {{ .Values.provisionerName | quote }}}
- {name: HTTP_ENDPOINT, value: "0.0.0.0:8080"}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
{{- if gt (int .Values.shards) 1 }}
- {name: SHARDS, value: {{ .Values.shards | quote }}}
{{- end }}
{{- include "common.cosiEnvironment" . }}
{{- range $name, $value := .Values.options }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end -}}

{{- define "common.container" -}}
image: {{ include "common.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
ports:
  - name: admin
    containerPort: 8080
  {{- if hasKey .Values "service" }}
  - name: nfs
    containerPort: 2049
  {{- end }}
# A first start may have much to list; a container that hangs later is started again after half a minute.
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
readinessProbe:
  {{- if hasKey .Values "service" }}
  # Clients need the NFS server, whatever its controller waits for; that is in metrics, events and /readyz.
  tcpSocket: {port: nfs}
  {{- else }}
  httpGet: {path: /readyz, port: admin}
  {{- end }}
  periodSeconds: 2
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end -}}

{{- define "common.pod" -}}
serviceAccountName: {{ include "common.account" . }}
{{- /* A server is told the address of its own Service by a variable; nobody else needs such variables. */}}
enableServiceLinks: {{ hasKey .Values "service" }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# Longer than work in flight may take to end.
terminationGracePeriodSeconds: 30
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
