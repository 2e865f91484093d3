{{- define "hostpath.pod" -}}
metadata:
  labels: {{- include "common.selector" . | nindent 4 }}
spec:
  {{- include "common.pod" . | nindent 2 }}
  securityContext:
    # Volumes are given to other users, and what these users leave in them is removed. Root does that with the
    # capabilities below, and has no other.
    runAsUser: 0
    runAsGroup: 0
    seccompProfile:
      type: RuntimeDefault
    {{- with .Values.seLinuxOptions }}
    seLinuxOptions: {{- toYaml . | nindent 6 }}
    {{- end }}
  containers:
    - name: hostpath-provisioner
      {{- include "common.container" . | nindent 6 }}
      env:
        {{- include "common.environment" . | nindent 8 }}
        - {name: HOSTPATH_ROOT, value: {{ include "hostpath.roots" . }}}
        {{- if eq .Values.coordination "per-node" }}
        # Serves the claims of this node alone.
        - name: NODE_NAME
          valueFrom:
            fieldRef: {fieldPath: spec.nodeName}
        {{- else if not .Values.hostPath.shared }}
        # Volumes are of the node that they were made on. Should the pod come to another node, those of the first one
        # are left alone until it is back.
        - name: IDENTITY
          valueFrom:
            fieldRef: {fieldPath: spec.nodeName}
        {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
          add:
            - CHOWN # the class's uid and gid
            - DAC_OVERRIDE # removing what is in directories of other users
            - FOWNER # the mode of directories that were given away
            - FSETID # modes such as 2770 for a group that is not root's
            {{- if .Values.enforceSizes }}
            - SYS_ADMIN # limits of directories; whoever takes the provisioner over then has the node
            {{- end }}
      volumeMounts:
        - name: root
          mountPath: {{ .Values.hostPath.path }}
          # What is mounted in a volume is seen, and so not deleted.
          mountPropagation: HostToContainer
        {{- range $name, $path := .Values.hostPath.roots }}
        - name: root-{{ $name }}
          mountPath: {{ dir $path }}
          mountPropagation: HostToContainer
        {{- end }}
  volumes:
    - name: root
      hostPath:
        # The same path inside and outside: volumes name it, and the kubelet mounts them by it.
        path: {{ .Values.hostPath.path }}
        # DirectoryOrCreate makes it for the first start. Where a disk of its own is mounted here, use Directory for a
        # directory on that disk: the pod then waits until the disk is there, and nothing is written below its mount point.
        type: {{ .Values.hostPath.type }}
    {{- range $name, $path := .Values.hostPath.roots }}
    - name: root-{{ $name }}
      hostPath:
        # A mount point. The root below it is on the disk, so a node without that has no such root.
        path: {{ dir $path }}
        type: DirectoryOrCreate
    {{- end }}
{{- end -}}

{{- define "hostpath.roots" -}}
{{ .Values.hostPath.path }}{{ range $name, $path := .Values.hostPath.roots }},{{ $name }}={{ $path }}{{ end }}
{{- end -}}
