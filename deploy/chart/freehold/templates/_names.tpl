{{- define "freehold.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "freehold" $name) }}{{ $name = printf "%s-freehold" $name }}{{ end -}}
{{- default $name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* What finds the Pods of a component: (list $ "apiserver"). */}}
{{- define "freehold.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: freehold
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of an object of a component: (list $ "apiserver"). */}}
{{- define "freehold.labels" -}}
{{- $root := index . 0 -}}
{{ include "freehold.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Name, namespace and labels of an object: (list $ "component" "name behind the full name, or nothing"). */}}
{{- define "freehold.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "freehold.fullname" $root }}{{ with index . 2 }}-{{ . }}{{ end }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "freehold.labels" (list $root (index . 1)) | nindent 2 }}
{{- end }}

{{- define "freehold.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "freehold.host" -}}
{{ include "freehold.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The URL of the servers inside of the cluster. */}}
{{- define "freehold.internalUrl" -}}
https://{{ include "freehold.host" . }}{{ if ne (int .Values.service.port) 443 }}:{{ .Values.service.port }}{{ end }}
{{- end }}

{{- define "freehold.externalUrl" -}}
{{ default (include "freehold.internalUrl" .) .Values.externalUrl }}
{{- end }}

{{/* The names under which clients outside of the cluster ask, as a list in YAML. */}}
{{- define "freehold.externalHosts" -}}
- {{ (urlParse (required "externalUrl is needed for a route from outside of the cluster" .Values.externalUrl)).hostname }}
{{- with .Values.domain }}
- {{ printf "*.%s" . | quote }}
{{- end }}
{{- end }}

{{- define "freehold.pkiSecret" -}}
{{ default (printf "%s-pki" (include "freehold.fullname" .)) .Values.pki.secretName }}
{{- end }}

{{/* The components of this release, as a list in YAML. */}}
{{- define "freehold.components" -}}
- apiserver
- controller-manager
{{- if include "freehold.ownEtcd" . }}
- etcd
{{- end }}
{{- range $component := list "provisioner" "scheduler" "syncer" "console" "backup" }}
{{- if (index $.Values $component).enabled }}
- {{ $component }}
{{- end }}
{{- end }}
{{- if or .Values.subsystems.enabled .Values.subsystems.offered }}
- subsystems
{{- end }}
{{- end }}
