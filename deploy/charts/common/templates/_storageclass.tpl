{{- /* A class, as far as all are alike; its arguments are the context and its parameters. */ -}}
{{- define "common.class" -}}
{{- $context := index . 0 -}}
{{- $class := $context.Values.storageClass -}}
{{- if and $class.create (not (include "common.cosi" $context)) -}}
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {{ $class.name }}
  {{- if $class.isDefault }}
  annotations:
    storageclass.kubernetes.io/is-default-class: "true"
  {{- end }}
provisioner: {{ $context.Values.provisionerName }}
reclaimPolicy: {{ $class.reclaimPolicy }}
{{- if has $class.expansion (list true false) }}
allowVolumeExpansion: {{ $class.expansion }}
{{- end }}
{{- with $class.mountOptions }}
mountOptions: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with index . 1 }}
parameters: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
