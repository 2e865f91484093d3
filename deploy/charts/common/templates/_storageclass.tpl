{{- /* A StorageClass; the arguments are the context, its name and its parameters. */ -}}
{{- define "common.class" -}}
{{- $context := index . 0 -}}
{{- $name := index . 1 -}}
{{- $parameters := index . 2 -}}
{{- $class := $context.Values.storageClass -}}
{{- $annotations := $class.annotations -}}
{{- if and $class.defaultClass (eq $name $class.name) -}}
{{- $annotations = merge (dict "storageclass.kubernetes.io/is-default-class" "true") $annotations -}}
{{- end -}}
{{- $binding := $class.volumeBindingMode | default (eq (default "" $context.Values.coordination) "per-node" | ternary "WaitForFirstConsumer" "Immediate") -}}
{{- include "common.checkClass" (list $context $name (dict "provisioner" $context.Values.provisionerName "reclaimPolicy" $class.reclaimPolicy "volumeBindingMode" $binding "parameters" $parameters)) -}}
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {{ $name }}
  labels: {{- include "common.labels" $context | nindent 4 }}
  {{- with $annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
provisioner: {{ $context.Values.provisionerName }}
reclaimPolicy: {{ $class.reclaimPolicy }}
{{- if hasKey $class "volumeBindingMode" }}
volumeBindingMode: {{ $binding }}
allowVolumeExpansion: {{ $class.allowVolumeExpansion }}
{{- end }}
{{- with $class.allowedTopologies }}
allowedTopologies: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $class.mountOptions }}
mountOptions: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $parameters }}
parameters: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Kubernetes refuses an upgrade that changes these fields, without saying what to do. A class of another release must not be deleted for that. */ -}}
{{- define "common.checkClass" -}}
{{- $live := lookup "storage.k8s.io/v1" "StorageClass" "" (index . 1) -}}
{{- $release := (index . 0).Release -}}
{{- $annotations := dig "metadata" "annotations" dict ($live | default dict) -}}
{{- $owner := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- if and $owner (or (ne $owner $release.Name) (ne $namespace $release.Namespace)) -}}
{{- fail (printf "the StorageClass %q belongs to the release %s in the namespace %s: set storageClass.name and provisionerName to other names" (index . 1) $owner $namespace) -}}
{{- end -}}
{{- range $field, $value := index . 2 -}}
{{- if and $live (ne (toJson $value) (get $live $field | default dict | toJson)) -}}
{{- fail (printf "the StorageClass %q has another %s, and Kubernetes does not permit changes of it. Run `kubectl delete storageclass %s` and repeat the command; volumes and claims stay as they are. Or set storageClass.name to another name" (index $ 1) $field (index $ 1)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The classes of charts with one class. */ -}}
{{- define "common.classes" -}}
{{- if and .Values.storageClass.create (not (include "common.cosi" .)) -}}
{{- include "common.class" (list . .Values.storageClass.name .Values.storageClass.parameters) -}}
{{- end -}}
{{- end -}}
