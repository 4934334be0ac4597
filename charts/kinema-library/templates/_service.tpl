{{/*
All objects of a service.

Takes root; service, the name without `kinema-`; and optionally rules (rights in the cluster: the service is given an
account with them), settings (merged under those of the
values) and files (content by file name, mounted at /etc/kinema/files).
*/}}
{{- define "kinema.service" -}}
{{- $values := include "kinema.values" .root | fromYaml -}}
{{- $name := printf "kinema-%s" .service -}}
{{- $context := mergeOverwrite (dict "files" dict "rules" list "settings" dict) . -}}
{{- $context = mergeOverwrite $context (dict "name" $name "values" $values) -}}
{{- $config := include "kinema.config" $context -}}
{{- $context = set $context "config" $config -}}
{{- if $context.rules }}
{{- include "kinema.rights" $context }}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {{- include "kinema.metadata" $context | nindent 2 }}
data: {{- $config | nindent 2 }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "kinema.metadata" $context | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  strategy: # whole, so that Helm removes all of it when it rolls back to a chart with Recreate
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  {{- include "kinema.podTemplate" (mergeOverwrite (dict "module" (printf "kinema_%s" .service)) $context) | nindent 2 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "kinema.metadata" $context | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "kinema.selector" $context | nindent 6 }}
---
apiVersion: v1
kind: Service
metadata: {{- include "kinema.metadata" $context | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true # /readyz of a pod that is not ready says why
  selector: {{- include "kinema.selector" $context | nindent 4 }}
  ports:
    - {name: health, port: 8080, targetPort: health}
{{- include "kinema.networkPolicy" $context }}
{{- include "kinema.podMonitor" $context }}
{{- end -}}

{{/* The settings file that the service reads, and files that the settings name: data of a ConfigMap. */}}
{{- define "kinema.config" -}}
{{- $values := .values -}}
{{- $cluster := required "cluster: name the cluster, in the umbrella by global.kinema.cluster" $values.cluster -}}
{{- $given := dict "cluster" $cluster "nats_url" $values.nats.url "nats_user" ($values.nats.user | default .service) -}}
{{- $given = mergeOverwrite $given (include "kinema.natsFiles" $values | fromYaml) -}}
{{- $own := dict "health_host" "0.0.0.0" "health_port" 8080 "log_format" "json" -}}
{{- $runtime := mergeOverwrite $own $values.runtime $given -}}
{{- $own := include "kinema.settings" (dict "service" .service "shared" $values.sharedSettings "own" $values.settings) | fromJson -}}
{{- $settings := mergeOverwrite (dict "runtime" $runtime) (deepCopy .settings) $own -}}
settings.json: {{ $settings | toJson | quote }}
{{- range $file, $content := .files }}
{{ $file }}: {{ $content | quote }}
{{- end }}
{{- end -}}

{{/* What proves user and broker to each other: settings of the runtime. Takes the values. */}}
{{- define "kinema.natsFiles" -}}
{{- with .nats -}}
{{- if .existingSecret }}
nats_{{ .auth }}_file: /etc/kinema/nats/{{ .auth }}
{{- end }}
{{- if .tls.secret }}
nats_ca_file: /etc/kinema/nats-tls/ca.crt
{{- end }}
{{- if and .tls.secret .tls.clientCertificate }}
nats_cert_file: /etc/kinema/nats-tls/tls.crt
nats_key_file: /etc/kinema/nats-tls/tls.key
{{- end }}
{{- with .tls.serverName }}
nats_server_name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kinema.natsMounts" -}}
{{- if .nats.existingSecret }}
- {name: nats, mountPath: /etc/kinema/nats, readOnly: true}
{{- end }}
{{- if .nats.tls.secret }}
- {name: nats-tls, mountPath: /etc/kinema/nats-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Takes values, and key, that of the user in the Secret unless the values name one. */}}
{{- define "kinema.natsVolumes" -}}
{{- with .values.nats.existingSecret }}
- name: nats
  secret:
    secretName: {{ . }}
    items:
      - {key: {{ $.values.nats.passwordKey | default $.key }}, path: {{ $.values.nats.auth }}}
{{- end }}
{{- with .values.nats.tls.secret }}
- name: nats-tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- end -}}

{{/* Selector and template of a workload. Takes beside the context of the service module, the Python module that runs. */}}
{{- define "kinema.podTemplate" -}}
selector:
  matchLabels: {{- include "kinema.selector" . | nindent 4 }}
template:
  metadata:
    labels: {{- mergeOverwrite (include "kinema.labels" . | fromYaml) .values.podLabels | toYaml | nindent 6 }}
    annotations:
      checksum/config: {{ sha256sum .config }}
      kinema.io/do-not-move: "true" # Kinema does not move the process that moves pods
      {{- with .values.podAnnotations }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  spec:
    {{- if .rules }}
    serviceAccountName: {{ include "kinema.serviceAccountName" . }}
    {{- end }}
    automountServiceAccountToken: {{ not (empty .rules) }}
    enableServiceLinks: false
    terminationGracePeriodSeconds: 30
    {{- include "kinema.scheduling" . | nindent 4 }}
    topologySpreadConstraints:
      {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
      - maxSkew: 1
        topologyKey: {{ . }}
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels: {{- include "kinema.selector" $ | nindent 12 }}
      {{- end }}
    containers:
      - name: {{ .service }}
        image: {{ include "kinema.image" . }}
        imagePullPolicy: {{ .values.image.pullPolicy }}
        command: [python, -m, {{ .module }}]
        args: [--settings, /etc/kinema/settings/settings.json]
        {{- with .values.env }}
        env: {{- toYaml . | nindent 10 }}
        {{- end }}
        ports:
          - {name: health, containerPort: 8080}
        startupProbe:
          httpGet: {path: /startupz, port: health}
          periodSeconds: 5
          failureThreshold: 120
        livenessProbe:
          httpGet: {path: /livez, port: health}
          timeoutSeconds: 5
        readinessProbe:
          httpGet: {path: /readyz, port: health}
          timeoutSeconds: 5
        resources: {{- toYaml .values.resources | nindent 10 }}
        securityContext: {{- include "kinema.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - {name: settings, mountPath: /etc/kinema/settings, readOnly: true}
          - {name: tmp, mountPath: /tmp}
          {{- include "kinema.natsMounts" .values | nindent 10 }}
          {{- with .values.extraVolumeMounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
    volumes:
      - name: settings
        configMap: {name: {{ .configMap | default .name }}}
      - name: tmp
        emptyDir: {}
      {{- include "kinema.natsVolumes" (dict "values" .values "key" .service) | nindent 6 }}
      {{- with .values.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}

{{- define "kinema.networkPolicy" -}}
{{- if .values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "kinema.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- include "kinema.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports:
        - {port: health}
  egress:
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53}
    - ports:
        {{- $ports := list }}
        {{- range (.values.nats.url | splitList ",") }}
        {{- $ports = append $ports (regexFind ":[0-9]+/?$" . | trimAll ":/" | default "4222") }}
        {{- end }}
        {{- range $ports | uniq }}
        - {port: {{ . }}}
        {{- end }}
    {{- if .rules }}
    - ports: # the API server; its port behind the Service differs by distribution
        {{- range .values.networkPolicy.apiServerPorts }}
        - {port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- include "kinema.providerEgress" (.provider | default "") | nindent 4 }}
    {{- with .values.networkPolicy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}

{{- /* What a provider of nodes reaches beside the API server, by its kind. */ -}}
{{- define "kinema.providerEgress" -}}
{{- if eq . "gke" -}}
- ports: # Google's APIs
    - {port: 443}
- to: # the metadata server, which hands out the tokens of workload identity
    - ipBlock: {cidr: 169.254.169.254/32}
    - ipBlock: {cidr: 169.254.169.252/32}
  ports:
    - {port: 80}
    - {port: 988}
{{- end -}}
{{- end -}}

{{- define "kinema.podMonitor" -}}
{{- if and .values.podMonitor.enabled (.root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  {{- include "kinema.metadata" . | nindent 2 }}
    {{- with .values.podMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels: {{- include "kinema.selector" . | nindent 6 }}
  podMetricsEndpoints:
    - {port: health, path: /metrics, interval: {{ .values.podMonitor.interval }}, honorLabels: true}
{{- end }}
{{- end -}}

{{/* `helm test`: asks the service whether it is ready. Takes root and service. */}}
{{- define "kinema.test" -}}
{{- $values := include "kinema.values" .root | fromYaml -}}
{{- $name := printf "kinema-%s" .service -}}
{{- $context := dict "root" .root "name" (printf "%s-test" $name) "values" $values -}}
apiVersion: v1
kind: Pod
metadata:
  {{- include "kinema.metadata" $context | nindent 2 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- include "kinema.scheduling" $context | nindent 2 }}
  containers:
    - name: ready
      image: {{ include "kinema.image" $context }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: [python, -c]
      args:
        - |
          import sys, urllib.error, urllib.request
          try:
              answer = urllib.request.urlopen("http://{{ $name }}.{{ .root.Release.Namespace }}.svc:8080/readyz", timeout=10)
              print(answer.read().decode())
          except urllib.error.HTTPError as error:
              sys.exit(error.read().decode())
      resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
      securityContext: {{- include "kinema.containerSecurity" $context | nindent 8 }}
{{- end -}}

{{/* NOTES of a service. Takes root and service. */}}
{{- define "kinema.notes" -}}
{{- $values := include "kinema.values" .root | fromYaml -}}
The {{ .service }} of cluster {{ $values.cluster }} uses the broker at {{ $values.nats.url }}.
{{- with $values.nats.existingSecret }}
Its pod waits for the Secret {{ . }}, key {{ $values.nats.passwordKey | default $.service }}.
{{- end }}

  kubectl -n {{ .root.Release.Namespace }} rollout status deployment/kinema-{{ .service }}
  helm -n {{ .root.Release.Namespace }} test {{ .root.Release.Name }}
{{- end -}}
