{{/* What a schema can't say: values that fit each by itself and not together. */}}
{{- define "sluice.checks" -}}
{{- $v := .Values -}}
{{- if and $v.database.url $v.database.existingSecret }}{{ fail "Set database.url or database.existingSecret, not both." }}{{ end -}}
{{- if and $v.redis.url $v.redis.existingSecret }}{{ fail "Set redis.url or redis.existingSecret, not both." }}{{ end -}}
{{- if and $v.redis.passwordSecret (not (or $v.redis.url $v.redis.existingSecret)) }}{{ fail "redis.passwordSecret is for a Redis of your own: set redis.url or redis.existingSecret too." }}{{ end -}}
{{- if and $v.storage.existingSecret (not $v.storage.url) }}{{ fail "storage.existingSecret is for a bucket of your own: set storage.url too." }}{{ end -}}
{{- if not $v.devDependencies.enabled -}}
{{- if not (or $v.database.url $v.database.existingSecret) }}{{ fail "Set database.url or database.existingSecret; or devDependencies.enabled=true for a trial." }}{{ end -}}
{{- if not (or $v.redis.url $v.redis.existingSecret) }}{{ fail "Set redis.url or redis.existingSecret; or devDependencies.enabled=true for a trial." }}{{ end -}}
{{- if not $v.storage.url }}{{ fail "Set storage.url, e.g. s3://bucket; or devDependencies.enabled=true for a trial." }}{{ end -}}
{{- end -}}
{{- range $stage := list "parse" "download" "transcode" -}}
{{- $taken := dict -}}
{{- range $name, $_ := $v.workers -}}
{{- $pool := include "sluice.pool" (dict "root" $ "name" $name) | fromYaml -}}
{{- if and $pool.enabled (eq $pool.stage $stage) -}}
{{- range $lane := $pool.lanes | default (list "critical" "high" "default" "low" "bulk") -}}
{{- if and (hasKey $taken $lane) $pool.autoscaling.enabled (ne $v.autoscaler.mode "none") }}{{ fail (printf "Pools %s and %s both take the lane %s of the stage %s: each would grow for what waits there. Give them lanes of their own." (get $taken $lane) $name $lane $stage) }}{{ end -}}
{{- $_ := set $taken $lane $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $lane := list "critical" "high" "default" "low" "bulk" -}}
{{- if not (hasKey $taken $lane) }}{{ fail (printf "No pool of workers takes the lane %s of the stage %s: what is sent there would wait for ever." $lane $stage) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $own := $v.api.autoscaling -}}
{{- if and $own.enabled (gt (int $own.minReplicas) (int $own.maxReplicas)) }}{{ fail "api.autoscaling.minReplicas is above maxReplicas." }}{{ end -}}
{{- $connections := add 1 (mul (add ($own.enabled | ternary $own.maxReplicas $v.api.replicas) $v.scheduler.replicas) $v.database.pool) -}}
{{- range $name, $_ := $v.workers -}}
{{- $pool := include "sluice.pool" (dict "root" $ "name" $name) | fromYaml -}}
{{- if $pool.enabled -}}
{{- if gt (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas) }}{{ fail (printf "workers.%s.autoscaling.minReplicas is above maxReplicas." $name) }}{{ end -}}
{{- $disk := dig "limits" "ephemeral-storage" "" $pool.resources -}}
{{- if and $disk (not $pool.scratch.storageClassName) (lt (include "sluice.bytes" $disk | int64) (add (include "sluice.bytes" $pool.scratch.size | int64) 1073741824)) }}{{ fail (printf "workers.%s.resources.limits.ephemeral-storage must be 1Gi above scratch.size, for what lies in /tmp: Kubernetes ends a pod that is over it." $name) }}{{ end -}}
{{- $connections = add $connections (mul (include "sluice.mostReplicas" (dict "root" $ "pool" $pool) | int) (include "sluice.workerConnections" $pool | int)) -}}
{{- end -}}
{{- end -}}
{{- if ne $v.autoscaler.mode "none" }}{{ $connections = add $connections (mul $v.autoscaler.replicas (include "sluice.autoscalerConnections" $ | int)) }}{{ end -}}
{{- if gt (int $connections) (int $v.database.maxConnections) -}}
{{- fail (printf "All processes together may open %d database connections, and database.maxConnections is %d: raise it with the server's max_connections, or lower maxReplicas, concurrency or database.pool." (int $connections) (int $v.database.maxConnections)) -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "name" pool): its values over workerDefaults, as YAML. */}}
{{- define "sluice.pool" -}}
{{- $own := index .root.Values.workers .name | default dict -}}
{{- mergeOverwrite (deepCopy .root.Values.workerDefaults) (deepCopy $own) | toYaml -}}
{{- end -}}

{{/* (dict "root" $ "pool" map): "true" when something else sets the number of replicas. */}}
{{- define "sluice.autoscaled" -}}
{{- if and .pool.autoscaling.enabled (ne .root.Values.autoscaler.mode "none") -}}true{{- end -}}
{{- end -}}

{{- define "sluice.mostReplicas" -}}
{{- if include "sluice.autoscaled" . -}}{{ .pool.autoscaling.maxReplicas }}{{- else -}}{{ .pool.replicas }}{{- end -}}
{{- end -}}

{{/* A connection for each run, and some for the watch over them. */}}
{{- define "sluice.workerConnections" -}}{{ add .concurrency 4 }}{{- end -}}

{{- define "sluice.autoscalerConnections" -}}2{{- end -}}
