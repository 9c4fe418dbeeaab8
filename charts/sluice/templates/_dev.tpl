{{/* One trial store. Recreated, never rolled: two servers on one folder would spoil it. */}}
{{- define "sluice.devStore" -}}
{{- $full := printf "%s-%s" (include "sluice.fullname" .root) .name -}}
{{- $context := dict "root" .root "component" .name -}}
{{- $persistence := .root.Values.devDependencies.persistence }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $full }}
  labels:
    {{- include "sluice.labels" $context | nindent 4 }}
spec:
  selector:
    {{- include "sluice.selector" $context | nindent 4 }}
  ports:
    - {name: {{ .name }}, port: {{ .port }}, targetPort: {{ .port }}}
{{- if $persistence.enabled }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ $full }}
  labels:
    {{- include "sluice.labels" $context | nindent 4 }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with $persistence.storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests: {storage: {{ include "sluice.text" $persistence.size }}}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $full }}
  labels:
    {{- include "sluice.labels" $context | nindent 4 }}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector:
    matchLabels:
      {{- include "sluice.selector" $context | nindent 6 }}
  template:
    metadata:
      {{- include "sluice.podMetadata" (dict "root" .root "keeps" true "labels" (include "sluice.selector" $context)) | nindent 6 }}
    spec:
      {{- include "sluice.podSpec" (dict "root" .root "user" .user) | nindent 6 }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .name }}
          image: {{ .values.image }}
          imagePullPolicy: IfNotPresent
          {{- with .command }}
          command: {{ toJson . }}
          {{- end }}
          args: {{ toJson .args }}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          env:
            {{- range $name, $key := .secretEnv }}
            - name: {{ $name }}
              valueFrom:
                secretKeyRef: {name: {{ include "sluice.fullname" $.root }}-dev, key: {{ $key }}}
            {{- end }}
            {{- range $name, $value := .env }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
          ports:
            - {name: {{ .name }}, containerPort: {{ .port }}}
          readinessProbe:
            {{- if .probe }}
            exec: {command: {{ toJson .probe }}}
            {{- else }}
            tcpSocket: {port: {{ .port }}}
            {{- end }}
            periodSeconds: 3
            timeoutSeconds: 5
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: {{ .data }}}
            {{- range $i, $path := .writable }}
            - {name: writable-{{ $i }}, mountPath: {{ $path }}}
            {{- end }}
      volumes:
        {{- range $i, $path := .writable }}
        - name: writable-{{ $i }}
          emptyDir: {sizeLimit: 256Mi}
        {{- end }}
        - name: data
          {{- if $persistence.enabled }}
          persistentVolumeClaim: {claimName: {{ $full }}}
          {{- else }}
          emptyDir: {sizeLimit: {{ include "sluice.text" $persistence.size }}}
          {{- end }}
{{- end -}}
