{{/* What the Pods of every component have. */}}
{{- define "freehold.pod" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "freehold.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The image of a container of this program. */}}
{{- define "freehold.program" -}}
image: {{ include "freehold.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "freehold.containerSecurity" . }}
{{- end }}

{{/* On which nodes Pods run: (list $ "component" its values). */}}
{{- define "freehold.scheduling" -}}
{{- $selector := include "freehold.selector" (list (index . 0) (index . 1)) -}}
{{- with index . 2 -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- with .affinity }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
  {{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
{{- end }}
{{- end }}

{{/* The volume with the authorities and the key, as `freehold pki` names them. 288 is 0440. */}}
{{- define "freehold.pkiVolume" -}}
- name: pki
  {{- if eq .Values.pki.mode "cert-manager" }}
  projected:
    defaultMode: 288
    sources:
      {{- range $name := list "ca" "front-proxy-ca" }}
      - secret:
          name: {{ include "freehold.fullname" $ }}-{{ $name }}
          items:
            - {key: tls.crt, path: {{ $name }}.crt}
            - {key: tls.key, path: {{ $name }}.key}
      {{- end }}
      - secret:
          name: {{ include "freehold.fullname" . }}-service-account
          items:
            - {key: tls.key, path: service-account.key}
  {{- else }}
  secret:
    secretName: {{ include "freehold.pkiSecret" . }}
    defaultMode: 288
  {{- end }}
{{- end }}

{{/* A container that writes a kubeconfig of an administrator for the containers behind it. */}}
{{- define "freehold.kubeconfigContainer" -}}
- name: kubeconfig
  {{- include "freehold.program" . | nindent 2 }}
  args:
    - pki
    - --dir=/etc/freehold/pki
    - --server={{ include "freehold.internalUrl" . }}
    - --admin-kubeconfig=/run/freehold/kubeconfig
  resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
  volumeMounts:
    - {name: pki, mountPath: /etc/freehold/pki, readOnly: true}
    - {name: kubeconfig, mountPath: /run/freehold}
{{- end }}

{{- define "freehold.kubeconfigVolume" -}}
- name: kubeconfig
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
