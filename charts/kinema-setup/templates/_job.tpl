{{/* A Job that runs `kinema setup`. Takes root, name, values, arguments, annotations, broker and account. */}}
{{- define "kinema.setup.job" }}
{{- $spec := include "kinema.setup.spec" . }}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- /* A Job cannot be changed: another one has another name. */}}
  name: {{ .name }}{{ if .broker }}-{{ sha256sum $spec | trunc 8 }}{{ end }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kinema.labels" . | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec: {{- $spec | nindent 2 }}
{{- end }}

{{- define "kinema.setup.spec" -}}
backoffLimit: 20
template:
  metadata:
    labels: {{- include "kinema.labels" . | nindent 6 }}
  spec:
    restartPolicy: OnFailure
    {{- if .account }}
    serviceAccountName: {{ include "kinema.serviceAccountName" . }}
    {{- end }}
    automountServiceAccountToken: {{ .account | default false }}
    enableServiceLinks: false
    {{- include "kinema.scheduling" . | nindent 4 }}
    containers:
      - name: setup
        image: {{ include "kinema.image" . }}
        imagePullPolicy: {{ .values.image.pullPolicy }}
        command: [kinema, setup]
        args: {{- toYaml .arguments | nindent 10 }}
        {{- if .broker }}
        env:
          - {name: KINEMA_NATS_USER, value: {{ .values.nats.user | default "admin" | quote }}}
          {{- range $setting, $value := include "kinema.natsFiles" .values | fromYaml }}
          - {name: KINEMA_{{ upper $setting }}, value: {{ $value | quote }}}
          {{- end }}
        {{- end }}
        resources: {{- toYaml .values.resources | nindent 10 }}
        securityContext: {{- include "kinema.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
          {{- if .broker }}
          {{- include "kinema.natsMounts" .values | nindent 10 }}
          {{- end }}
    volumes:
      - name: tmp
        emptyDir: {}
      {{- if .broker }}
      {{- include "kinema.natsVolumes" (dict "values" .values "key" "admin") | nindent 6 }}
      {{- end }}
{{- end }}
