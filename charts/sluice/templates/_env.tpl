{{/* The environment of every process of the release. */}}

{{/* A value as text: numbers of a values file are floats here, and large ones would become 1e+09. */}}
{{- define "sluice.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end -}}
{{- end -}}

{{/* What is no secret, as a map NAME: value; ConfigMap and checksum are made of it. */}}
{{- define "sluice.settings" -}}
{{- $full := include "sluice.fullname" . -}}
SLUICE_LOG_FORMAT: json
SLUICE_DATA_DIR: /data
SLUICE_METRICS_HOST: {{ .Values.listen | quote }}
SLUICE_METRICS_PORT: "9090"
SLUICE_DATABASE_POOL: {{ .Values.database.pool | quote }}
{{- if include "sluice.dev.s3" . }}
# Its address means nothing outside the cluster, so files go out through the API.
SLUICE_STORAGE_URL: {{ printf "s3://sluice?endpoint=http://%s-s3.%s.svc:8333&presign=off" $full .Release.Namespace | quote }}
{{- else }}
SLUICE_STORAGE_URL: {{ .Values.storage.url | quote }}
{{- end }}
{{- $allow := .Values.egress.allow }}
{{- if include "sluice.sampleSite" . }}
{{- $allow = append $allow (printf "%s-sample-site.%s.svc:8080" $full .Release.Namespace) }}
{{- end }}
{{- with $allow }}
SLUICE_EGRESS_ALLOW: {{ join "," . | quote }}
{{- end }}
{{- with .Values.egress.proxy }}
SLUICE_EGRESS_PROXY: {{ . | quote }}
{{- end }}
{{- if .Values.presets }}
SLUICE_PRESETS_FILE: /etc/sluice/presets/presets.toml
{{- end }}
{{- if and (include "sluice.dev.any" .) (not (hasKey .Values.settings "START_PATIENCE")) }}
# The stores' images are pulled at the same time: waiting is better than ending and being held back.
SLUICE_START_PATIENCE: "120"
{{- end }}
{{- range $name, $value := .Values.settings }}
SLUICE_{{ $name }}: {{ include "sluice.text" $value | quote }}
{{- end }}
{{- end -}}

{{/* Changes with whatever a pod reads only at its start. Made Secrets are left out: they never change. */}}
{{- define "sluice.checksum" -}}
checksum/settings: {{ printf "%s %s %s %s" .Values.presets (include "sluice.settings" .) (toJson .Values.database) (toJson .Values.redis) | sha256sum }}
{{- end -}}

{{/* `env` entries that come from Secrets. */}}
{{- define "sluice.databaseEnv" -}}
- name: SLUICE_DATABASE_URL
  valueFrom:
    secretKeyRef:
      {{- if .Values.database.existingSecret }}
      name: {{ .Values.database.existingSecret }}
      key: {{ .Values.database.secretKey }}
      {{- else }}
      name: {{ include "sluice.fullname" . }}-{{ include "sluice.dev.postgresql" . | eq "true" | ternary "dev" "stores" }}
      key: database-url
      {{- end }}
{{- end -}}

{{- define "sluice.storesEnv" -}}
{{ include "sluice.databaseEnv" . }}
- name: SLUICE_REDIS_URL
  valueFrom:
    secretKeyRef:
      {{- if .Values.redis.existingSecret }}
      name: {{ .Values.redis.existingSecret }}
      key: {{ .Values.redis.secretKey }}
      {{- else }}
      name: {{ include "sluice.fullname" . }}-{{ include "sluice.dev.redis" . | eq "true" | ternary "dev" "stores" }}
      key: redis-url
      {{- end }}
{{- with .Values.redis.passwordSecret }}
- name: SLUICE_REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.redis.passwordKey }}
{{- end }}
{{- $secret := .Values.storage.existingSecret }}
{{- if include "sluice.dev.s3" . }}
{{- $secret = printf "%s-dev" (include "sluice.fullname" .) }}
{{- end }}
{{- if $secret }}
- name: SLUICE_S3_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ $secret }}, key: {{ include "sluice.dev.s3" . | eq "true" | ternary "s3-access-key" .Values.storage.accessKeyKey }}}
- name: SLUICE_S3_SECRET_KEY
  valueFrom:
    secretKeyRef: {name: {{ $secret }}, key: {{ include "sluice.dev.s3" . | eq "true" | ternary "s3-secret-key" .Values.storage.secretKeyKey }}}
{{- end }}
{{- end }}

{{/* For those alone that write and open what is kept for sites: API, parsers and downloaders. */}}
{{- define "sluice.siteSecretsEnv" -}}
- name: SLUICE_SITE_SECRETS_KEY
  valueFrom:
    secretKeyRef: {name: {{ include "sluice.siteSecret" . }}, key: {{ .Values.siteSecrets.secretKey }}}
{{- end -}}

{{/* (dict "root" $ "settings" map "extra" map): a component's own settings over the common ones. */}}
{{- define "sluice.ownEnv" -}}
{{- range $name, $value := merge (dict) (.settings | default dict) (.extra | default dict) }}
- name: SLUICE_{{ $name }}
  value: {{ include "sluice.text" $value | quote }}
{{- end }}
{{- end -}}

{{- define "sluice.podName" -}}
- name: SLUICE_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end -}}
