{{/* Values, with the cluster that an umbrella names; its images are not this one. */}}
{{- define "kinema.nats.values" -}}
{{- $cluster := dig "kinema" "cluster" "" (.Values.global | default dict) -}}
{{- set (deepCopy .Values) "cluster" ($cluster | default .Values.cluster) | toYaml -}}
{{- end -}}
