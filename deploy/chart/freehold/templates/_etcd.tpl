{{/* Not empty where the chart runs an etcd of its own. */}}
{{- define "freehold.ownEtcd" -}}
{{- if not .Values.etcd.endpoints }}true{{ end }}
{{- end }}

{{/* The URL of a member of the chart's own etcd: (list $ number port). */}}
{{- define "freehold.etcdMember" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-etcd" (include "freehold.fullname" $root) -}}
http://{{ $name }}-{{ index . 1 }}.{{ $name }}.{{ $root.Release.Namespace }}.svc:{{ index . 2 }}
{{- end }}

{{- define "freehold.etcdEndpoints" -}}
{{- if include "freehold.ownEtcd" . -}}
{{- range $member := until (int .Values.etcd.server.replicas) }}{{ if $member }},{{ end }}{{ include "freehold.etcdMember" (list $ $member 2379) }}{{ end }}
{{- else -}}
{{ join "," .Values.etcd.endpoints }}
{{- end }}
{{- end }}

{{/* How etcd is reached: arguments, mounts and volumes. */}}
{{- define "freehold.etcdArgs" -}}
- --etcd={{ include "freehold.etcdEndpoints" . }}
- --etcd-prefix={{ .Values.etcd.prefix }}
{{- if .Values.etcd.tlsSecret }}
- --etcd-ca=/etc/freehold/etcd/ca.crt
{{- if .Values.etcd.clientCertificate }}
- --etcd-cert=/etc/freehold/etcd/tls.crt
- --etcd-key=/etc/freehold/etcd/tls.key
{{- end }}
{{- end }}
{{- with .Values.etcd.user }}
- --etcd-user={{ . }}
- --etcd-password-file=/etc/freehold/etcd-user/password
{{- end }}
{{- end }}

{{- define "freehold.etcdMounts" -}}
{{- if .Values.etcd.tlsSecret }}
- {name: etcd, mountPath: /etc/freehold/etcd, readOnly: true}
{{- end }}
{{- if .Values.etcd.user }}
- {name: etcd-user, mountPath: /etc/freehold/etcd-user, readOnly: true}
{{- end }}
{{- end }}

{{- define "freehold.etcdVolumes" -}}
{{- with .Values.etcd.tlsSecret }}
- name: etcd
  secret: {secretName: {{ . }}, defaultMode: 288}
{{- end }}
{{- if .Values.etcd.user }}
- name: etcd-user
  secret: {secretName: {{ required "etcd.user needs etcd.passwordSecret" .Values.etcd.passwordSecret }}, defaultMode: 288}
{{- end }}
{{- end }}
