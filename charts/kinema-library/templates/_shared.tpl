{{/* Written by tools/charts.py: defaults of the values that charts share. */}}
{{- define "kinema.shared" -}}
{"cluster": "", "nats": {"url": "nats://kinema-nats:4222", "existingSecret": "kinema-nats", "auth": "password", "tls": {"secret": "", "clientCertificate": false, "serverName": ""}}, "image": {"registry": "ghcr.io/kinema", "tag": "", "pullPolicy": "IfNotPresent", "pullSecrets": []}, "networkPolicy": {"enabled": true, "extraEgress": [], "apiServerPorts": [443, 6443]}, "podMonitor": {"enabled": true, "interval": "30s", "labels": {}}}
{{- end -}}
