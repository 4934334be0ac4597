{{/* A Job that runs `kinema setup`. Takes root, name, values, arguments, annotations, broker and account. */}}
{{- define "kinema.setup.job" }}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- $named := .name }}
  {{- if .broker }}
  {{- /* A Job cannot be changed: another one has another name. */ -}}
  {{- $named = printf "%s-%s" .name (toJson (list .arguments .values.image .root.Chart.AppVersion) | sha256sum | trunc 8) }}
  {{- end }}
  name: {{ $named }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kinema.labels" . | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  backoffLimit: 20
  template:
    metadata:
      labels: {{- include "kinema.labels" . | nindent 8 }}
    spec:
      restartPolicy: OnFailure
      {{- if .account }}
      serviceAccountName: {{ include "kinema.serviceAccountName" . }}
      {{- end }}
      automountServiceAccountToken: {{ .account | default false }}
      enableServiceLinks: false
      {{- include "kinema.scheduling" . | nindent 6 }}
      containers:
        - name: setup
          image: {{ include "kinema.image" . }}
          imagePullPolicy: {{ .values.image.pullPolicy }}
          command: [kinema, setup]
          args: {{- toYaml .arguments | nindent 12 }}
          {{- if .broker }}
          env:
            - {name: KINEMA_NATS_USER, value: {{ .values.nats.user | default "admin" }}}
            {{- range $setting, $value := include "kinema.natsFiles" .values | fromYaml }}
            - {name: KINEMA_{{ upper $setting }}, value: {{ $value }}}
            {{- end }}
          {{- end }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext: {{- include "kinema.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if .broker }}
            {{- include "kinema.natsMounts" .values | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- if .broker }}
        {{- include "kinema.natsVolumes" (dict "values" .values "key" "admin") | nindent 8 }}
        {{- end }}
{{- end }}
