{{- /* The COSI mode: `controller`, `sidecar`, or empty without COSI. */ -}}
{{- define "common.cosi" -}}
{{- with .Values.cosi -}}
{{- if and .mode (or (gt (int $.Values.shards) 1) $.Values.previousShards) -}}
{{- fail "with cosi.mode the work has one shard: remove shards and previousShards from the values" -}}
{{- end -}}
{{- if and .mode $.Values.storageClass.parameters -}}
{{- fail "storageClass.parameters have no effect with cosi.mode: set them in your BucketClass and BucketAccessClass" -}}
{{- end -}}
{{- if and (eq .mode "sidecar") (not .sidecarImage) -}}
{{- fail "cosi.mode sidecar needs cosi.sidecarImage: the sidecar of the COSI release whose CRDs and controller the cluster has" -}}
{{- end -}}
{{- if and (ne .mode "sidecar") (or .sidecarImage .sidecarArgs) -}}
{{- fail "cosi.sidecarImage and cosi.sidecarArgs need cosi.mode sidecar" -}}
{{- end -}}
{{- if and .driverName (not .mode) -}}
{{- fail "cosi.driverName needs cosi.mode" -}}
{{- end -}}
{{- .mode -}}
{{- end -}}
{{- end -}}

{{- /* The driver's name, which the program derives from the provisioner's in the same way. */ -}}
{{- define "common.driver" -}}
{{- $parts := splitn "/" 2 .Values.provisionerName -}}
{{- .Values.cosi.driverName | default ($parts._1 | empty | ternary $parts._0 (printf "%s.%s" $parts._1 $parts._0)) -}}
{{- end -}}

{{- define "common.cosiEnvironment" -}}
{{- $mode := include "common.cosi" . -}}
{{- if eq $mode "controller" }}
- {name: COSI_CONTROLLER, value: "true"}
{{- else if eq $mode "sidecar" }}
- {name: COSI_ENDPOINT, value: "unix:///var/lib/cosi/cosi.sock"}
{{- end }}
{{- if and $mode .Values.cosi.driverName }}
- {name: COSI_DRIVER_NAME, value: {{ .Values.cosi.driverName }}}
{{- end }}
{{- end -}}

{{- define "common.cosiMount" -}}
{{- if eq (include "common.cosi" .) "sidecar" }}
- {name: cosi, mountPath: /var/lib/cosi}
{{- end }}
{{- end -}}

{{- define "common.cosiVolume" -}}
{{- if eq (include "common.cosi" .) "sidecar" }}
# The driver's socket.
- name: cosi
  emptyDir: {}
{{- end }}
{{- end -}}

{{- define "common.cosiSidecar" -}}
{{- if eq (include "common.cosi" .) "sidecar" -}}
- name: sidecar
  image: {{ .Values.cosi.sidecarImage }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: {{- prepend .Values.cosi.sidecarArgs "--driver-addr=unix:///var/lib/cosi/cosi.sock" | toYaml | nindent 4 }}
  env:
    - name: POD_NAMESPACE
      valueFrom:
        fieldRef: {fieldPath: metadata.namespace}
  securityContext:
    {{- include "common.confined" . | nindent 4 }}
  volumeMounts:
    {{- include "common.cosiMount" . | trim | nindent 4 }}
  resources: {{- toYaml .Values.cosi.sidecarResources | nindent 4 }}
{{- end -}}
{{- end -}}

{{- /* The permissions that release 0.2.2 of upstream's sidecar needs in addition to the driver's: in the cluster and in its own namespace. */ -}}
{{- define "common.cosiSidecarRights" -}}
cluster:
  - apiGroups: [objectstorage.k8s.io]
    resources: [buckets, bucketaccesses, bucketclaims, bucketclasses, bucketaccessclasses, buckets/status, bucketaccesses/status, bucketclaims/status]
    verbs: [get, list, watch, update, create, delete]
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get, list, create, update, delete]
  - apiGroups: [""]
    resources: [events]
    verbs: [create, patch, update, list, watch]
namespace:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [get, list, watch, create, update, delete]
{{- end -}}
