{{/* A Deployment of a component that is a client of the servers, of which one Pod works and the others stand by:
     (dict "root" $ "component" its name "values" its values "args" its arguments), and "pki" true where it signs; "ports",
     "readiness" and "strategy" where it is reached. */}}
{{- define "freehold.worker" -}}
{{- $root := .root -}}
{{- $values := .values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "freehold.metadata" (list $root .component .component) | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: 3
  {{- with .strategy }}
  strategy: {{ toJson . }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "freehold.selector" (list $root .component) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "freehold.labels" (list $root .component) | nindent 8 }}
      {{- with $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "freehold.pod" $root | nindent 6 }}
      automountServiceAccountToken: false
      {{- include "freehold.scheduling" (list $root .component $values) | trim | nindent 6 }}
      initContainers:
        {{- include "freehold.kubeconfigContainer" $root | nindent 8 }}
      containers:
        - name: {{ .component }}
          {{- include "freehold.program" $root | nindent 10 }}
          args:
            {{- toYaml .args | nindent 12 }}
            - --log={{ $root.Values.logLevel }}
            - --log-json
            - --kubeconfig=/run/freehold/kubeconfig
            {{- if .pki }}
            - --pki-dir=/etc/freehold/pki
            {{- end }}
            - --leader-elect
            - --leader-elect-lease-duration={{ $values.leaseSeconds }}
            - --metrics-listen={{ $root.Values.apiserver.listenAddress }}:7080
            {{- with $values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: metrics, containerPort: 7080}
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          livenessProbe:
            httpGet: {port: metrics, path: /healthz}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          {{- with .readiness }}
          readinessProbe:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            {{- if .pki }}
            - {name: pki, mountPath: /etc/freehold/pki, readOnly: true}
            {{- end }}
            - {name: kubeconfig, mountPath: /run/freehold, readOnly: true}
      volumes:
        {{- include "freehold.pkiVolume" $root | nindent 8 }}
        {{- include "freehold.kubeconfigVolume" $root | nindent 8 }}
{{- end }}
