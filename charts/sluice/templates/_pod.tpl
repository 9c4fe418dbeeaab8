{{/* What the pods of all our own components have in common. */}}

{{/* (dict "root" $ "nodeSelector" "tolerations" "affinity" "priorityClassName" "selector" "account" "user");
"user": number of a foreign image's user, in place of ours. */}}
{{- define "sluice.podSpec" -}}
{{- $v := .root.Values -}}
serviceAccountName: {{ .account | default (include "sluice.fullname" .root) }}
automountServiceAccountToken: {{ .token | default false }}
# Else every Service of the namespace becomes variables, and one named sluice-… becomes SLUICE_…_PORT.
enableServiceLinks: false
{{- with $v.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- $security := include "sluice.withoutNull" $v.podDefaults.securityContext | fromYaml }}
  {{- with .user }}
  {{- range $key := list "runAsUser" "runAsGroup" "fsGroup" }}
  {{- if hasKey $security $key }}{{ $_ := set $security $key $.user }}{{ end }}
  {{- end }}
  {{- end }}
  {{- toYaml $security | nindent 2 }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with merge (dict) (.nodeSelector | default dict) $v.podDefaults.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- /* Only what has a selector is made anew elsewhere; stores wait for their volume, and jobs for their node. */}}
{{- $lost := list }}
{{- if and .selector (not (kindIs "invalid" $v.podDefaults.tolerationSeconds)) }}
{{- range list "not-ready" "unreachable" }}
{{- $lost = append $lost (dict "key" (printf "node.kubernetes.io/%s" .) "operator" "Exists" "effect" "NoExecute"
  "tolerationSeconds" ($v.podDefaults.tolerationSeconds | int64)) }}
{{- end }}
{{- end }}
{{- with concat (.tolerations | default list) $v.podDefaults.tolerations $lost }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .selector }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $.selector | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Helm keeps a null of a nested default in some places and drops it in others. */}}
{{- define "sluice.withoutNull" -}}
{{- $kept := dict -}}
{{- range $k, $x := . }}{{- if not (kindIs "invalid" $x) }}{{- $_ := set $kept $k $x }}{{- end }}{{- end -}}
{{- toYaml $kept -}}
{{- end -}}

{{/* (dict "root" $ "labels" text "annotations" map "settings" bool "keeps" bool). The labels are those that
never change: a new version of the chart alone must not restart every worker. "settings": new ones must.
"keeps": what lies in the pod's folders is found nowhere else. */}}
{{- define "sluice.podMetadata" -}}
labels:
  {{- .labels | nindent 2 }}
  {{- range $k, $x := .root.Values.podDefaults.labels }}
  {{ $k }}: {{ $x | quote }}
  {{- end }}
{{- $annotations := merge (dict) (.annotations | default dict) .root.Values.podDefaults.annotations }}
{{- if .settings }}{{ $annotations = merge $annotations (include "sluice.checksum" .root | fromYaml) }}{{ end }}
{{- /* Else an autoscaler of nodes takes none away on which one of these pods is. */}}
{{- if not .keeps }}{{ $annotations = merge $annotations (dict "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes" "tmp,data") }}{{ end }}
{{- with $annotations }}
annotations:
  {{- range $k, $x := . }}
  {{ $k }}: {{ $x | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Of a container. The last line that a process wrote is its reason, shown by `kubectl describe`. */}}
{{- define "sluice.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* The two folders that are written, and certificates: all that a pod may have before the release is there. */}}
{{- define "sluice.baseMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: data, mountPath: /data}
{{- if .Values.caSecret }}
- {name: ca, mountPath: /etc/sluice/ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "sluice.baseVolumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if .Values.caSecret }}
- name: ca
  secret: {secretName: {{ .Values.caSecret }}}
{{- end }}
{{- end -}}

{{- define "sluice.mounts" -}}
{{ include "sluice.baseMounts" . }}
{{- if .Values.presets }}
- {name: presets, mountPath: /etc/sluice/presets, readOnly: true}
{{- end }}
{{- end -}}

{{- define "sluice.volumes" -}}
{{ include "sluice.baseVolumes" . }}
{{- if .Values.presets }}
- name: presets
  configMap: {name: {{ include "sluice.fullname" . }}-presets}
{{- end }}
{{- end -}}

{{- define "sluice.envFrom" -}}
- configMapRef: {name: {{ include "sluice.fullname" . }}}
{{- with .Values.settingsSecret }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{/* How long a process may be silent. A node without CPU to spare makes all of its pods silent at once, and
a start takes more CPU than an answer: whoever is killed for that makes it worse, and loses what it runs. */}}
{{- define "sluice.liveness" -}}
periodSeconds: 10
timeoutSeconds: 10
failureThreshold: 12
{{- end -}}

{{/* Of a worker, the scheduler or the autoscaler: whether its parts move, never whether stores answer. */}}
{{- define "sluice.probes" -}}
# Each of three stores may be away for a while at the start; whoever waited in vain, or has wrong
# settings, ends by itself and says why, so this only ends what is stuck.
startupProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 200
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  {{- include "sluice.liveness" . | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* (dict "root" $ "component" "api" "selector" text "budget" map "suffix" "api") */}}
{{- define "sluice.pdb" -}}
{{- if .budget }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "sluice.fullname" .root }}-{{ .suffix }}
  labels:
    {{- .labels | nindent 4 }}
spec:
  {{- toYaml .budget | nindent 2 }}
  # A pod that does not work must not keep its node from being emptied.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- .selector | nindent 6 }}
{{- end }}
{{- end -}}

{{/* A quantity of memory or disk in bytes. */}}
{{- define "sluice.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := include "sluice.text" . -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[A-Za-z]*$" $text)) | int64 -}}
{{- end -}}
