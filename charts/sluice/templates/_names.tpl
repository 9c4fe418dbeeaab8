{{/* Names, labels and images: what every object of the release has. */}}

{{- define "sluice.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough that a component and a hash still fit behind it; a name of a Service has no dots. */}}
{{- define "sluice.fullname" -}}
{{- $name := include "sluice.name" . -}}
{{- $full := .Values.fullnameOverride | default (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) -}}
{{- $full | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* (dict "root" $ "component" "api"): labels that selectors use; never to be changed. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ include "sluice.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/part-of: sluice
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* (dict "root" $ "image" {repository,tag,digest} "name" "api"): the component's own, else prefix-name. */}}
{{- define "sluice.image" -}}
{{- $own := .image | default dict -}}
{{- $repository := $own.repository | default (printf "%s-%s" .root.Values.image.repository .name) -}}
{{- if $own.digest -}}
{{- printf "%s@%s" $repository $own.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($own.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "sluice.apiKeySecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-api-key" (include "sluice.fullname" .)) -}}
{{- end -}}

{{- define "sluice.siteSecret" -}}
{{- .Values.siteSecrets.existingSecret | default (printf "%s-site-secrets" (include "sluice.fullname" .)) -}}
{{- end -}}

{{- define "sluice.apiUrl" -}}
{{- printf "http://%s-api.%s.svc:%v" (include "sluice.fullname" .) .Release.Namespace .Values.api.service.port -}}
{{- end -}}

{{/* Which trial stores the release brings: "true" or nothing. */}}
{{- define "sluice.dev.postgresql" -}}
{{- if and .Values.devDependencies.enabled (not .Values.database.url) (not .Values.database.existingSecret) -}}true{{- end -}}
{{- end -}}
{{- define "sluice.dev.redis" -}}
{{- if and .Values.devDependencies.enabled (not .Values.redis.url) (not .Values.redis.existingSecret) -}}true{{- end -}}
{{- end -}}
{{- define "sluice.dev.s3" -}}
{{- if and .Values.devDependencies.enabled (not .Values.storage.url) -}}true{{- end -}}
{{- end -}}

{{- define "sluice.dev.any" -}}
{{- if or (include "sluice.dev.postgresql" .) (include "sluice.dev.redis" .) (include "sluice.dev.s3" .) -}}true{{- end -}}
{{- end -}}

{{- define "sluice.sampleSite" -}}
{{- $wanted := .Values.sampleSite.enabled -}}
{{- if kindIs "bool" $wanted -}}{{- if $wanted -}}true{{- end -}}
{{- else if .Values.devDependencies.enabled -}}true{{- end -}}
{{- end -}}
