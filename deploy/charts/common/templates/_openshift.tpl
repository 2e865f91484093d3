{{- /* The permissions that the pods need in addition to OpenShift's restricted-v2; the arguments are the context and the types of volumes. */ -}}
{{- define "common.securityContextConstraints" -}}
{{- $context := index . 0 -}}
{{- if $context.Values.openshift.enabled -}}
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata:
  name: {{ include "common.clusterName" $context }}
  labels: {{- include "common.labels" $context | nindent 4 }}
allowHostDirVolumePlugin: {{ has "hostPath" (index . 1) }}
allowHostIPC: false
allowHostNetwork: {{ $context.Values.hostNetwork }}
allowHostPID: false
allowHostPorts: {{ $context.Values.hostNetwork }}
allowPrivilegeEscalation: false
allowPrivilegedContainer: false
readOnlyRootFilesystem: true
defaultAddCapabilities: []
requiredDropCapabilities: [ALL]
allowedCapabilities: [{{ (include "common.securityContext" $context | fromYaml).capabilities.add | join ", " }}]
runAsUser: {type: RunAsAny}
fsGroup: {type: RunAsAny}
supplementalGroups: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
seccompProfiles: [runtime/default]
# The default, which the API server does not set.
priority: 0
# The chart's own, and the usual ones of extraVolumes.
volumes: [{{ concat (index . 1) (list "projected" "configMap" "secret" "emptyDir") | uniq | join ", " }}]
users: ["system:serviceaccount:{{ $context.Release.Namespace }}:{{ include "common.account" $context }}"]
groups: []
{{- end }}
{{- end -}}
