{{- /* What pods need beside OpenShift's restricted-v2; the arguments are the context, the capabilities and the kinds of volumes. */ -}}
{{- define "common.securityContextConstraints" -}}
{{- $context := index . 0 -}}
{{- if $context.Values.openshift.enabled -}}
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata:
  name: {{ $context.Release.Namespace }}-{{ include "common.name" $context }}
allowHostDirVolumePlugin: {{ has "hostPath" (index . 2) }}
allowHostIPC: false
allowHostNetwork: false
allowHostPID: false
allowHostPorts: false
allowPrivilegeEscalation: false
allowPrivilegedContainer: false
readOnlyRootFilesystem: true
defaultAddCapabilities: []
requiredDropCapabilities: [ALL]
allowedCapabilities: [{{ index . 1 | join ", " }}]
runAsUser: {type: RunAsAny}
fsGroup: {type: RunAsAny}
supplementalGroups: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
seccompProfiles: [runtime/default]
# As where none is named, which the API server refuses.
priority: 0
volumes: [{{ append (index . 2) "projected" | join ", " }}]
users: ["system:serviceaccount:{{ $context.Release.Namespace }}:{{ include "common.account" $context }}"]
groups: []
{{- end }}
{{- end -}}
