{{- /* NOTES.txt; the arguments are the context and the kind of the workload. */ -}}
{{- define "common.notes" -}}
{{- $context := index . 0 -}}
{{- $kind := index . 1 -}}
{{- with $context -}}
{{- $name := include "common.name" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $level := include "common.podSecurity" . -}}
{{- $cosi := include "common.cosi" . -}}
{{ .Chart.Name }} {{ .Chart.AppVersion }} runs as {{ $kind }}/{{ $name }} in the namespace {{ $namespace }}{{ if $cosi }} and serves COSI as the driver {{ include "common.driver" . }}{{ else }} and serves the StorageClasses of {{ .Values.provisionerName }}{{ end }}.

Wait until it is ready:

  kubectl rollout status {{ $kind }}/{{ $name }} --namespace {{ $namespace }}
{{- if and .Values.storageClass.create (not $cosi) }}

Check the StorageClass {{ .Values.storageClass.name }}, and create a claim of it:

  helm test {{ .Release.Name }} --namespace {{ $namespace }}

kubectl create --filename - <<'EOF'
{{- if hasKey .Values "caBundle" }}
apiVersion: objectbucket.io/v1alpha1
kind: ObjectBucketClaim
metadata: {name: first, namespace: default}
spec: {storageClassName: {{ .Values.storageClass.name }}, generateBucketName: first}
EOF
kubectl get objectbucketclaim first --namespace default
{{- else }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: first, namespace: default}
spec: {storageClassName: {{ .Values.storageClass.name }}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
EOF
kubectl get pvc first --namespace default
{{- if eq (include "common.mode" .) "per-node" }}

The claim stays Pending until a pod uses it.
{{- end }}
{{- end }}
{{- end }}
{{- if ne $level "restricted" }}

If no pod starts, and events in the namespace mention PodSecurity:

  kubectl label --overwrite namespace {{ $namespace }} pod-security.kubernetes.io/enforce={{ $level }}
{{- end }}
{{- if hasPrefix "system-" .Values.priorityClassName }}

GKE refuses pods with the priority class {{ .Values.priorityClassName }} unless the namespace has a ResourceQuota for it.
{{- end }}

Everything that this release created, except CRDs:

  kubectl get all,clusterrole,clusterrolebinding,role,rolebinding,sa,netpol,pdb,sc --selector app.kubernetes.io/instance={{ .Release.Name }} --all-namespaces
{{- end }}
{{ end -}}
