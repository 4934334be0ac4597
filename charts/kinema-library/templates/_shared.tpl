{{/* Written by tools/charts.py: defaults of the values that charts share. */}}
{{- define "kinema.shared" -}}
{"cluster": "", "nats": {"url": "nats://kinema-nats:4222", "existingSecret": "kinema-nats", "auth": "password", "tls": {"secret": "", "clientCertificate": false, "serverName": ""}}, "image": {"registry": "ghcr.io/kinema", "tag": "", "pullPolicy": "IfNotPresent", "pullSecrets": []}, "networkPolicy": {"enabled": true, "extraEgress": [], "apiServerPorts": [443, 6443]}, "podMonitor": {"enabled": true, "interval": "30s", "labels": {}}, "sharedSettings": {}}
{{- end -}}

{{/* Settings that services need alike, with their defaults. */}}
{{- define "kinema.alike" -}}
{"optimizer": {"planning": {"allow_spot": false, "max_moves_fraction": 0.25, "min_savings_fraction": 0.1, "move_jobs": false, "redundancy": true, "resize_in_place": true, "restart_price_usd": 0.0001, "scope": [], "spot": {"max_share": null, "max_share_per_pool": null}, "transition_seconds": 300.0}}, "decider": {"limits": {"allow_spot": false, "max_moves_fraction": 0.25, "min_savings_fraction": 0.1, "move_jobs": false, "redundancy": true, "resize_in_place": true, "restart_price_usd": 0.0001, "scope": [], "spot": {"max_share": null, "max_share_per_pool": null}, "transition_seconds": 300.0}}, "rescheduler": {"limits": {"max_moves_fraction": 0.25, "move_jobs": false, "resize_in_place": true}}}
{{- end -}}
