#!/bin/sh
# Make an account with rights of its own for each service that reaches the cluster, and a kubeconfig with its token:
#
#   deploy/compose/kubeconfigs.sh DIRECTORY [PROVIDER]        PROVIDER: delegate (default), kwok or static
#
# Needs kubectl with the rights of an administrator, which no file of DIRECTORY has. A second run changes nothing.
# `kubectl --namespace kinema delete secret kinema-observer kinema-rescheduler` withdraws the tokens.
set -eu
directory=${1:?name the directory to write into}
${KINEMA:-docker compose run --rm --no-TTY kinema} rbac --provider "${2:-delegate}" | kubectl apply --filename -
cluster=$(kubectl config view --minify --flatten --output 'jsonpath={.clusters[0].cluster}')
umask 077
mkdir -p "$directory"
for service in observer rescheduler; do
  account=kinema-$service
  kubectl apply --filename - <<EOF
{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
 "metadata": {"name": "$account", "namespace": "kinema", "annotations": {"kubernetes.io/service-account.name": "$account"}}}
EOF
  for second in 1 2 3 4 5 6 7 8 9 10; do # a controller writes the token
    token=$(kubectl --namespace kinema get secret "$account" --output 'jsonpath={.data.token}' | base64 -d)
    [ -z "$token" ] || break
    sleep 1
  done
  [ -n "$token" ] || { echo "Secret kinema/$account has no token after ten seconds: is kube-controller-manager up?" >&2; exit 1; }
  cat > "$directory/$service" <<EOF
{"apiVersion": "v1", "kind": "Config", "current-context": "kinema",
 "clusters": [{"name": "kinema", "cluster": $cluster}],
 "users": [{"name": "$account", "user": {"token": "$token"}}],
 "contexts": [{"name": "kinema", "context": {"cluster": "kinema", "user": "$account"}}]}
EOF
done
