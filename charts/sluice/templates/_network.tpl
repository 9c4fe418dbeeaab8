{{/* Rules that more than one NetworkPolicy has, as items of `egress`. */}}

{{- define "sluice.dnsEgress" -}}
{{- $dns := .Values.networkPolicy.dns -}}
- to:
    {{- toYaml $dns.to | nindent 4 }}
  ports:
    - {protocol: UDP, port: {{ $dns.port }}}
    - {protocol: TCP, port: {{ $dns.port }}}
{{- end -}}

{{- define "sluice.storesEgress" -}}
{{- if include "sluice.dev.any" . }}
- to:
    - podSelector:
        matchLabels:
          app.kubernetes.io/name: {{ include "sluice.name" . }}
          app.kubernetes.io/instance: {{ .Release.Name }}
        matchExpressions:
          - {key: app.kubernetes.io/component, operator: In, values: [postgresql, redis, s3]}
  ports: [{protocol: TCP, port: 5432}, {protocol: TCP, port: 6379}, {protocol: TCP, port: 8333}]
{{- end }}
{{- if not (and (include "sluice.dev.postgresql" .) (include "sluice.dev.redis" .) (include "sluice.dev.s3" .)) }}
- ports:
    {{- range .Values.networkPolicy.stores.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.stores.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}
