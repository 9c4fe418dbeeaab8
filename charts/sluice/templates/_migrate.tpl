{{/* (dict "root" $ "hook" bool): the whole spec of the migration's Job. */}}
{{- define "sluice.migration" -}}
{{- $v := .root.Values -}}
{{- $full := include "sluice.fullname" .root -}}
{{- if .hook }}
backoffLimit: 2
activeDeadlineSeconds: 240
{{- else }}
# It goes on for days: a Job that gave up before the images or the database were there would never be
# run again, since nothing in it changes by their being there.
backoffLimit: 1000
{{- end }}
template:
  metadata:
    {{- include "sluice.podMetadata" (dict "root" .root "labels" (include "sluice.selector" (dict "root" .root "component" "migrate"))) | nindent 4 }}
  spec:
    {{- include "sluice.podSpec" (dict "root" .root "account" (.hook | ternary "default" $full)) | nindent 4 }}
    # Of a hook that failed the pod stays, with its log; else one pod tries until the database is there.
    restartPolicy: {{ .hook | ternary "Never" "OnFailure" }}
    terminationGracePeriodSeconds: 30
    containers:
      - name: migrate
        image: {{ include "sluice.image" (dict "root" .root "image" $v.scheduler.image "name" "scheduler") }}
        args: [python, -m, sluice_core.runtime.migrate]
        {{- include "sluice.container" .root | nindent 8 }}
        env:
          {{- if and .hook $v.database.url }}
          - name: SLUICE_DATABASE_URL
            valueFrom:
              secretKeyRef: {name: {{ $full }}-migrate, key: database-url}
          {{- else }}
          {{- include "sluice.databaseEnv" .root | nindent 10 }}
          {{- end }}
          {{- if not .hook }}
          - {name: SLUICE_START_PATIENCE, value: "120"}
          {{- end }}
          - name: SLUICE_BOOTSTRAP_KEY
            valueFrom:
              secretKeyRef: {name: {{ include "sluice.apiKeySecret" .root }}, key: {{ $v.auth.secretKey }}}
        resources:
          {{- toYaml $v.migration.resources | nindent 10 }}
        volumeMounts:
          {{- include "sluice.baseMounts" .root | nindent 10 }}
    volumes:
      {{- include "sluice.baseVolumes" .root | nindent 6 }}
      - name: data
        emptyDir: {sizeLimit: 64Mi}
{{- end -}}
