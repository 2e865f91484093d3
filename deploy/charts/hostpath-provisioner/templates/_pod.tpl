{{- define "hostpath-provisioner.environment" }}
- {name: HOSTPATH_ROOT, value: "{{ .Values.hostPath.path }}{{ range $name, $path := .Values.hostPath.roots }},{{ $name }}={{ $path }}{{ end }}"}
{{- if eq .Values.coordination "per-node" }}
{{- if .Values.hostPath.shared }}
{{- fail "hostPath.shared needs `coordination: lease`: with per-node, each volume belongs to one node" }}
{{- end }}
# Serves only the claims of this node.
- name: NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
{{- else if not .Values.hostPath.shared }}
# Volumes belong to the node where they were created. If the pod moves to another node, it leaves them alone until it is back.
- name: IDENTITY
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
{{- end }}
{{- end -}}

{{- define "hostpath-provisioner.mounts" }}
- name: root
  mountPath: {{ .Values.hostPath.path }}
  # The provisioner sees mounts in a volume, and does not delete what is mounted there.
  mountPropagation: HostToContainer
{{- range $parent, $name := include "hostpath-provisioner.parents" . | fromYaml }}
- name: root-{{ $name }}
  mountPath: {{ $parent }}
  mountPropagation: HostToContainer
{{- end }}
{{- end -}}

{{- define "hostpath-provisioner.volumes" }}
- name: root
  hostPath:
    # The same path inside and outside the container: volumes contain it, and the kubelet mounts them by it.
    path: {{ .Values.hostPath.path }}
    # DirectoryOrCreate creates it for the first start. For a separate disk, use Directory and a directory on that disk: the
    # pod then waits for the disk, and nothing is written below its mount point.
    type: {{ .Values.hostPath.type }}
{{- range $parent, $name := include "hostpath-provisioner.parents" . | fromYaml }}
- name: root-{{ $name }}
  hostPath:
    # A mount point. The root below it is on the disk, so a node without the disk does not have this root.
    path: {{ $parent }}
    type: DirectoryOrCreate
{{- end }}
{{- end -}}

{{- /* The parent directories of the additional roots, with the name of one root in each. */ -}}
{{- define "hostpath-provisioner.parents" -}}
{{- $parents := dict -}}
{{- range $name, $path := .Values.hostPath.roots -}}
{{- $_ := set $parents (clean $path | dir) $name -}}
{{- end -}}
{{- toYaml $parents -}}
{{- end -}}
