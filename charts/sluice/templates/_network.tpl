{{/* Rules that more than one NetworkPolicy has, as items of `egress`. */}}

{{- define "sluice.dnsEgress" -}}
{{- $dns := .Values.networkPolicy.dns -}}
- ports:
    {{- range $dns.ports }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with $dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
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
{{- if not (or (include "sluice.dev.s3" .) .Values.storage.existingSecret) }}
# Where EKS tells pods their own identity, on each node; without a pod's token it answers nobody.
- to: [{ipBlock: {cidr: 169.254.170.23/32}}, {ipBlock: {cidr: "fd00:ec2::23/128"}}]
  ports: [{protocol: TCP, port: 80}]
{{- end }}
{{- end -}}
