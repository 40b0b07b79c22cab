{{/* Each document of a file of deploy/kubernetes, with the values of its component laid over it. */}}
{{- define "stagewatch.documents" -}}
{{- $root := .root -}}
{{- range regexSplit "(?m)^---\n" ($root.Files.Get (printf "manifests/%s.yaml" .file)) -1 }}
{{- $document := fromYaml . }}
{{- $component := index $document.metadata.labels "app.kubernetes.io/component" }}
{{- $values := index $root.Values $component }}
{{- if $values.enabled }}
{{- $labels := $document.kind | eq "PodMonitor" | ternary $root.Values.monitors.labels dict }}
{{- $_ := set $document.metadata "labels" (mergeOverwrite (include "stagewatch.labels" $root | fromYaml) $document.metadata.labels $labels) }}
{{- $_ := set $document.metadata "namespace" $root.Release.Namespace }}
{{- if $document.spec.template }}
{{- include "stagewatch.workload" (dict "root" $root "component" $component "values" $values "spec" $document.spec) }}
{{- else if eq $document.kind "PodMonitor" }}
{{- range (first $document.spec.podMetricsEndpoints).relabelings }}
{{- if eq (.targetLabel | default "") "cluster" }}
{{- $_ := set . "replacement" $root.Values.cluster }}
{{- end }}
{{- end }}
{{- end }}
---
{{ toYaml $document }}
{{- end }}
{{- end }}
{{- end }}

{{- define "stagewatch.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Changes the specification of a workload; writes nothing. */}}
{{- define "stagewatch.workload" -}}
{{- $root := .root -}}
{{- $pod := .spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $images := $root.Values.images -}}
{{- $own := and (eq .component "slurm") (ne $images.slurm.repository "") -}}
{{- $image := ternary $images.slurm $images.agent $own -}}
{{- $_ := set $container "image" (printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion)) -}}
{{- $environ := list -}}
{{- range $container.env -}}
{{- if not (hasKey $.values.env .name) }}{{ $environ = append $environ . }}{{ end -}}
{{- end -}}
{{- range $name, $value := .values.env -}}
{{- $environ = append $environ (dict "name" $name "value" (toString $value)) -}}
{{- end -}}
{{- if ne (.values.act | default "propose") "propose" -}}
{{- $environ = append $environ (dict "name" "STAGEWATCH_JUDGE_ACT" "value" .values.act) -}}
{{- $environ = append $environ (dict "name" "STAGEWATCH_COLLECTOR_ACT_ON" "value" "kubernetes") -}}
{{- $_ := set $pod "automountServiceAccountToken" true -}}
{{- end -}}
{{- $_ := set $container "env" $environ -}}
{{- $_ := set $pod "serviceAccountName" (printf "stagewatch-%s" .component) -}}
{{- if .values.replicas }}{{ $_ := set .spec "replicas" .values.replicas }}{{ end -}}
{{- if and (eq .component "node") (ne (include "stagewatch.gpuOperator" $root) "true") -}}
{{- $_ := unset $pod "runtimeClassName" -}}
{{- $_ := unset $pod "nodeSelector" -}}
{{- end -}}
{{- if eq .component "slurm" -}}
{{- range $pod.volumes -}}
{{- range dig "projected" "sources" list . -}}
{{- if .configMap }}{{ $_ := set .configMap "name" $.values.configMap }}{{ end -}}
{{- if .secret }}{{ $_ := set .secret "name" $.values.secret }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := mergeOverwrite $pod .values.pod -}}
{{- $_ := mergeOverwrite (first $pod.containers) .values.container -}}
{{- end }}

{{/* "true" or "false", where a value is `auto` by the API that the cluster has. */}}
{{- define "stagewatch.gpuOperator" -}}
{{- eq (toString .Values.gpuOperator) "auto" | ternary (.Capabilities.APIVersions.Has "nvidia.com/v1") .Values.gpuOperator -}}
{{- end }}
{{- define "stagewatch.prometheusOperator" -}}
{{- eq (toString .Values.prometheusOperator) "auto" | ternary (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") .Values.prometheusOperator -}}
{{- end }}
