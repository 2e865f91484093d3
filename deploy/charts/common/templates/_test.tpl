{{- /* `helm test`: the program checks the chart's StorageClasses; the arguments are the context and the classes. */ -}}
{{- define "common.test" -}}
{{- $context := index . 0 -}}
{{- $name := printf "%s-test" (include "common.name" $context) -}}
{{- with index . 1 | trim -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ $name }}
  namespace: {{ $context.Release.Namespace }}
  labels: {{- include "common.labelsOf" (list $context (printf "%s-test" (include "common.chartName" $context))) | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    kube-provisioner/classes: {{ . | quote }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- include "common.otherPlacement" $context | nindent 2 }}
  securityContext:
    runAsNonRoot: true
    {{- if not $context.Values.openshift.enabled }}
    runAsUser: 65532
    {{- end }}
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: check-class
      image: {{ include "common.image" $context }}
      imagePullPolicy: {{ $context.Values.image.pullPolicy }}
      args: {{- concat (compact (list (index $context.Chart.Annotations "kube-provisioner/mode"))) (list "check-class" "/classes/classes.yaml") | toYaml | nindent 8 }}
      env:
        - {name: PROVISIONER_NAME, value: {{ $context.Values.provisionerName | quote }}}
        {{- if eq (include "common.mode" $context) "per-node" }}
        - {name: NODE_NAME, value: any}
        {{- end }}
      securityContext: {{- include "common.confined" . | nindent 8 }}
      volumeMounts:
        - {name: classes, mountPath: /classes, readOnly: true}
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {memory: 128Mi}
  volumes:
    - name: classes
      downwardAPI:
        items:
          - path: classes.yaml
            fieldRef: {fieldPath: "metadata.annotations['kube-provisioner/classes']"}
{{- end -}}
{{- end -}}
