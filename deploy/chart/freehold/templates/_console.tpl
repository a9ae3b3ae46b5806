{{- define "freehold.consoleArgs" -}}
{{- if .Values.console.enabled }}
- --console
{{- with .Values.console.oidc }}
{{- if .issuer }}
- --console-oidc-issuer={{ .issuer }}
- --console-oidc-client-id={{ required "console.oidc.issuer needs console.oidc.clientId" .clientId }}
{{- if .clientSecretName }}
- --console-oidc-client-secret-file=/etc/freehold/console-client/client-secret
{{- end }}
{{- if .caSecret }}
- --console-oidc-ca-file=/etc/freehold/console-ca/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The volumes of the console's Secrets, by their names. */}}
{{- define "freehold.consoleSecrets" -}}
{{- if and .Values.console.enabled .Values.console.oidc.issuer }}
{{- with .Values.console.oidc.clientSecretName }}
console-client: {{ . }}
{{- end }}
{{- with .Values.console.oidc.caSecret }}
console-ca: {{ . }}
{{- end }}
{{- end }}
{{- end }}
