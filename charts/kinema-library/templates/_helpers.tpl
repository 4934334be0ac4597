{{/* Values of a chart, then those that an umbrella sets for all (`global.kinema`), then defaults, as YAML. */}}
{{- define "kinema.values" -}}
{{- $all := dig "kinema" dict (.Values.global | default dict) -}}
{{- mergeOverwrite (include "kinema.shared" . | fromJson) (deepCopy $all) (deepCopy .Values) | toYaml -}}
{{- end -}}

{{/* Settings of a service: of `global.kinema.sharedSettings` those that it has, then its own. Takes service, shared and own. */}}
{{- define "kinema.settings" -}}
{{- $shared := .shared | default dict -}}
{{- $found := dict -}}
{{- range $place, $alike := get (include "kinema.alike" . | fromJson) .service | default dict -}}
{{- range $name, $_ := $alike -}}
{{- if hasKey $shared $name -}}
{{- $found = merge $found (dict $place (dict $name (get $shared $name))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $found (deepCopy .own) | toJson -}}
{{- end -}}

{{/* Labels of all objects. Takes root and name. */}}
{{- define "kinema.labels" -}}
{{ include "kinema.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kinema
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "kinema.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{/* Metadata of an object in the release's namespace. Takes root, name and optionally annotations. */}}
{{- define "kinema.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
{{- with .annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
labels: {{- include "kinema.labels" . | nindent 2 }}
{{- end -}}

{{/* The name in the release's cluster-wide objects: two releases in two namespaces do not share them. */}}
{{- define "kinema.clusterName" -}}
{{ .root.Release.Namespace }}-{{ .name }}
{{- end -}}

{{- define "kinema.serviceAccountName" -}}
{{ .values.serviceAccount.name | default .name }}
{{- end -}}

{{- define "kinema.image" -}}
{{- $image := .values.image -}}
{{- $repository := list $image.registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Security of a pod, as the restricted pod security standard asks for it. */}}
{{- define "kinema.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kinema.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What the pods of services and jobs have in common. Takes root, name and values. */}}
{{- define "kinema.scheduling" -}}
securityContext: {{- include "kinema.podSecurity" . | nindent 2 }}
{{- with .values.image.pullSecrets }}
imagePullSecrets: {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with get $.values $key }}
{{ $key }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Account of a service with the rights that its rules state; the rules come from the service's own code. */}}
{{- define "kinema.rights" -}}
{{- $context := . -}}
{{- $account := dict "kind" "ServiceAccount" "name" (include "kinema.serviceAccountName" .) "namespace" .root.Release.Namespace -}}
{{- if .values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $account.name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kinema.labels" . | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- if .values.rbac.create }}
{{- $spaces := list }}
{{- range .rules }}{{ $spaces = append $spaces (.namespace | default "") }}{{ end }}
{{- range $space := $spaces | uniq | sortAlpha }}
{{- $kind := ternary "Role" "ClusterRole" (ne $space "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ include "kinema.clusterName" $context }}
  {{- with $space }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "kinema.labels" $context | nindent 4 }}
  {{- with $context.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
{{- range $context.rules }}
{{- if eq (.namespace | default "") $space }}
  - {{ toJson .rule }}
{{- end }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ include "kinema.clusterName" $context }}
  {{- with $space }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "kinema.labels" $context | nindent 4 }}
  {{- with $context.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ include "kinema.clusterName" $context }}}
subjects:
  - {{ toJson $account }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Policy that bounds what the account that moves pods writes, whatever its rights allow. Takes root, name and values. */}}
{{- define "kinema.guard" -}}
{{- $context := . -}}
{{- if and .values.rbac.create (semverCompare ">=1.30.0-0" .root.Capabilities.KubeVersion.Version) }}
{{- $user := printf "system:serviceaccount:%s:%s" .root.Release.Namespace (include "kinema.serviceAccountName" .) }}
{{- $text := .root.Files.Get "files/guard.json" | replace "ACCOUNT" $user | replace "\"kinema-guard\"" (include "kinema.clusterName" . | quote) }}
{{- range $text | fromJsonArray }}
---
{{ mergeOverwrite . (dict "metadata" (dict "labels" (include "kinema.labels" $context | fromYaml))) | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What is missing without Prometheus' operator. */}}
{{- define "kinema.unmonitored" -}}
{{- if not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}

The API server has no monitoring.coreos.com/v1: neither alerts nor monitors are installed. docs/monitor.md shows how to
load them into a Prometheus without its operator.
{{- end }}
{{- end -}}

{{/* What `helm uninstall` leaves, and why. */}}
{{- define "kinema.stays" -}}
`helm uninstall` leaves:
- MutatingAdmissionPolicy kinema-steering, ValidatingAdmissionPolicy kinema-landing and their bindings: without a plan
  they change and refuse no pod, and a policy that is installed again after its removal has no effect until the API
  server restarts. `kinema setup --no-placement-policy` removes them, and the Lease.
- in kube-system: ConfigMaps kinema-steering and kinema-landing, Lease kinema, and the provider's ledger of ordered nodes.
- with the broker of the chart kinema-nats: Secret kinema-nats and PersistentVolumeClaim data-kinema-nats-0, so that a
  second installation goes on with the same streams.
{{- end -}}

{{/* Whether plans wait for the operator. Takes the limits among the decider's settings. */}}
{{- define "kinema.approval" -}}
{{- if eq (dig "approval" "required" .) "automatic" -}}
Plans that save are executed at once: `approval` of the decider is automatic.
{{- else -}}
A plan that saves waits until you approve it.
{{- end -}}
{{- end -}}

{{/* Size in bytes, 0 for one of another form; for Kubernetes (`8Gi`) and the broker (`6G`, `6GiB`). Takes the text. */}}
{{- define "kinema.bytes" -}}
{{- $unit := regexFind "[KMGT]i?B?$" (upper . | replace "I" "i") -}}
{{- $count := regexFind "^[0-9]+" . -}}
{{- $bytes := ternary (int64 $count) 0 (eq (printf "%s%s" $count $unit) (upper . | replace "I" "i")) -}}
{{- range untilStep 0 (index (dict "K" 1 "M" 2 "G" 3 "T" 4) (trunc 1 $unit) | default 0 | int) 1 -}}
{{- $bytes = mul $bytes (ternary 1000 1024 (eq (len $unit) 1)) -}}
{{- end -}}
{{ $bytes }}
{{- end -}}

{{/* Refuse a provider's file that is none. Takes provider and catalog, its content. */}}
{{- define "kinema.catalog" -}}
{{- if regexMatch "^[[:word:]./-]+$" .catalog -}}
{{- fail (printf "catalog: it is the content of a file, and %q looks like a path: give the file by --set-file" .catalog) -}}
{{- end -}}
{{- if and (eq .provider "static") (not (hasPrefix "{" (trim .catalog))) -}}
{{- fail "catalog: the provider static takes a JSON object of machines and commands: give the file by --set-file" -}}
{{- end -}}
{{- if and (ne .provider "static") (not (contains "machine_type" .catalog)) -}}
{{- fail "catalog: a CSV of prices has a column machine_type: give the file by --set-file" -}}
{{- end -}}
{{- end -}}
