{{- /* Refuses values that cannot work, with a message that says what to do. */ -}}
{{- define "common.checks" -}}
{{- $renamed := list -}}
{{- range $key, $text := .Files.Get "files/renamed.yaml" | fromYaml -}}
{{- $parts := splitList "." $key -}}
{{- $group := len $parts | eq 1 | ternary $.Values (get $.Values (first $parts)) -}}
{{- if and (kindIs "map" $group) (hasKey $group (last $parts)) -}}
{{- $renamed = append $renamed (printf "%s: %s" $key $text) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "local-path-provisioner|nfs-subdir-external-provisioner|nfs-client-provisioner" .Values.image.repository -}}
{{- $renamed = append $renamed "image.repository: remove it and image.tag: this is the image of another program" -}}
{{- end -}}
{{- if $renamed -}}
{{- printf "the chart does not have these values:\n  %s\n" (join "\n  " $renamed) | fail -}}
{{- end -}}
{{- $set := dict "PROVISIONER_NAME" "provisionerName" "HTTP_ENDPOINT" "httpPort" "COORDINATION" "coordination" "SHARDS" "shards" "LOG_FORMAT" "logFormat" "COSI_CONTROLLER" "cosi.mode" "COSI_ENDPOINT" "cosi.mode" "COSI_DRIVER_NAME" "cosi.driverName" -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $set .name -}}
{{- fail (printf "extraEnv: use the value %s instead of the variable %s" (get $set .name) .name) -}}
{{- end -}}
{{- end -}}
{{- $needed := include "common.podSecurity" . -}}
{{- $levels := dict "restricted" 0 "baseline" 1 "privileged" 2 -}}
{{- /* Empty without a cluster, and before `helm install --create-namespace` creates the namespace. */ -}}
{{- $namespace := lookup "v1" "Namespace" "" .Release.Namespace | default dict -}}
{{- $enforced := dig "metadata" "labels" "pod-security.kubernetes.io/enforce" "privileged" $namespace -}}
{{- if lt (get $levels $enforced | int) (get $levels $needed | int) -}}
{{- fail (printf "the namespace %q enforces Pod Security %q, which refuses the pods of this chart. Use a namespace of its own, or run: kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=%s" .Release.Namespace $enforced .Release.Namespace $needed) -}}
{{- end -}}
{{- end -}}

{{- /* The Pod Security level that the pods need. */ -}}
{{- define "common.podSecurity" -}}
{{- .Values.hostNetwork | ternary "privileged" (index .Chart.Annotations "kube-provisioner/pod-security") -}}
{{- end -}}
