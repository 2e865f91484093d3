{{- /* The template of the pods. The chart's own environment, mounts and volumes are templates named after it. */ -}}
{{- define "common.podTemplate" -}}
metadata:
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
  labels: {{- merge (include "common.labels" . | fromYaml) .Values.podLabels | toYaml | nindent 4 }}
spec:
  serviceAccountName: {{ include "common.account" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automountServiceAccountToken }}
  {{- /* The NFS server reads the address of its own Service from a variable; the others need no such variables. */}}
  enableServiceLinks: {{ hasKey .Values "service" }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  # Longer than unfinished calls may take during shutdown.
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- include "common.placement" . | nindent 2 }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if gt (.Values.replicaCount | default 1 | int) 1 }}
  # A replica that waits for its turn is useful only on another node.
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "common.selector" . | nindent 10 }}
  {{- end }}
  securityContext: {{- include "common.podSecurityContext" . | nindent 4 }}
  containers:
    - name: {{ .Chart.Name }}
      {{- include "common.container" . | nindent 6 }}
    {{- with include "common.cosiSidecar" . }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- with print (include (printf "%s.volumes" .Chart.Name) .) (include "common.cosiVolume" .) (include "common.list" .Values.extraVolumes) | trim }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "common.container" -}}
image: {{ include "common.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with concat (compact (list (index .Chart.Annotations "kube-provisioner/mode"))) .Values.extraArgs }}
args: {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: admin
    containerPort: {{ .Values.httpPort }}
  {{- if hasKey .Values "service" }}
  - name: nfs
    containerPort: 2049
  {{- end }}
# The first start may list many objects. Later, a container that hangs restarts after half a minute.
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
readinessProbe:
  {{- if hasKey .Values "service" }}
  # Clients need the NFS server, not its controller, whose state is in metrics, events and /readyz.
  tcpSocket: {port: nfs}
  {{- else }}
  httpGet: {path: /readyz, port: admin}
  {{- end }}
  periodSeconds: 2
resources: {{- toYaml .Values.resources | nindent 2 }}
env:
  {{- include "common.environment" . | nindent 2 }}
  {{- with print (include (printf "%s.environment" .Chart.Name) .) (include "common.list" .Values.extraEnv) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "common.securityContext" . | nindent 2 }}
{{- with print (include (printf "%s.mounts" .Chart.Name) .) (include "common.cosiMount" .) (include "common.list" .Values.extraVolumeMounts) | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Environment variables of every provisioner. Not arguments, so that commands by kubectl exec need none. */ -}}
{{- define "common.environment" -}}
- {name: PROVISIONER_NAME, value: {{ .Values.provisionerName | quote }}}
- {name: HTTP_ENDPOINT, value: {{ printf "0.0.0.0:%d" (int .Values.httpPort) | quote }}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
{{- if ne .Values.logLevel "info" }}
# The API client's own lines can contain Secrets, so they stay off.
- {name: RUST_LOG, value: "{{ .Values.logLevel }},kube_client=off,kube_runtime=off,hyper=warn,hyper_util=warn,rustls=warn"}
{{- end }}
{{- if ne .Values.logFormat "text" }}
- {name: LOG_FORMAT, value: {{ .Values.logFormat }}}
{{- end }}
{{- if gt (include "common.shards" . | int) 1 }}
- {name: SHARDS, value: {{ include "common.shards" . | quote }}}
{{- end }}
{{- include "common.cosiEnvironment" . }}
{{- end -}}

{{- define "common.podSecurityContext" -}}
{{- if and .Values.openshift.enabled .Values.podSecurityContext.runAsNonRoot -}}
# OpenShift chooses a user of the namespace.
{{ omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup" | toYaml }}
{{- else -}}
{{- toYaml .Values.podSecurityContext -}}
{{- end -}}
{{- end -}}

{{- define "common.securityContext" -}}
{{- $context := deepCopy .Values.securityContext -}}
{{- if .Values.enforceSizes -}}
{{- $capabilities := $context.capabilities | default dict -}}
{{- $_ := set $capabilities "add" (append ($capabilities.add | default list) "SYS_ADMIN") -}}
{{- $_ := set $context "capabilities" $capabilities -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- /* The security context of other containers of the chart. */ -}}
{{- define "common.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "common.placement" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{ end -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* The placement of the chart's other pods. A toleration without a key would also permit a node that does not respond. */ -}}
{{- define "common.otherPlacement" -}}
{{- include "common.placement" . -}}
{{- $tolerations := list -}}
{{- range .Values.tolerations -}}
{{- if .key -}}
{{- $tolerations = append $tolerations . -}}
{{- end -}}
{{- end -}}
{{- with $tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Items for the end of a list. */ -}}
{{- define "common.list" -}}
{{- with . }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The CA certificates for the backend. */ -}}
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
