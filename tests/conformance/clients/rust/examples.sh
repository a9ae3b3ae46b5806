#!/usr/bin/env bash
# Runs kube's own examples, unchanged, against the project that KUBECONFIG names, which a node has to run Pods for.
#
#   tests/conformance/clients/rust/examples.sh KUBE    a checkout of https://github.com/kube-rs/kube
#
# Those that end have to end well; of those that go on something has to be seen, which stands beside them. Examples that
# need a terminal, a network or a command inside of a container are left out: pod_attach, pod_cp, pod_exec, pod_portforward*,
# pod_shell*, pod_log_kubelet_debug, log_stream; and admission_controller, whose script makes certificates for a cluster in
# Docker.
set -euo pipefail

kube=$(cd "$1" && pwd)
cd "$kube"
export RUST_LOG=info,kube=info NAMESPACE=default
cargo build --quiet -p kube-examples --examples --no-default-features --features rustls-tls,kubederive,ws,latest,runtime
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0

told() {
  if [ "$1" = 0 ]; then echo "ok $2"; else echo "failed $2"; tail -15 "$out"; failed=1; fi
}

# ends NAME [ARG...]: an example that ends, and has to end well.
ends() {
  local code=0
  timeout 120 "$target/debug/examples/$1" "${@:2}" >"$out" 2>&1 || code=$?
  told "$code" "$*"
}

# shows TEXT MANIFEST NAME [ARG...]: an example that goes on, and what it has to say once a manifest is applied.
shows() {
  local text=$1 manifest=$2 code=1
  shift 2
  timeout 60 "$target/debug/examples/$1" "${@:2}" >"$out" 2>&1 &
  local pid=$!
  for _ in $(seq 120); do
    sleep 0.5
    [ -z "$manifest" ] || printf '%s' "$manifest" | kubectl apply -f - >/dev/null 2>&1 || true
    if grep -q "$text" "$out"; then code=0 && break; fi
    kill -0 "$pid" 2>/dev/null || break
  done
  kill "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  told "$code" "$*"
}

random() { od -An -N4 -tx4 /dev/urandom | tr -d ' '; }
# kubectl takes what begins with a brace for JSON.
manifest() { printf 'apiVersion: v1\nkind: %s\nmetadata: %s\n%s\n' "$@"; }
config_map() { manifest ConfigMap "{name: examples, labels: {at: x$1}}" ""; }
pod() { manifest Pod '{name: examples}' "spec: {containers: [{name: c, image: 'registry.k8s.io/pause:1'}]}"; }

ends crd_api
ends crd_apply
ends crd_derive
ends crd_derive_schema
ends crd_derive_multi
ends crd_derive_custom_schema
kubectl apply -f examples/crd-baz.yaml >/dev/null 2>&1 || true
ends dynamic_api
ends dynamic_jsonpath
ends dynamic_pod
ends request_raw
ends cert_check
ends custom_client
ends custom_client_trace
ends custom_client_retry
ends job_api
ends pod_api
ends pod_evict
ends pod_paged
ends kubectl get configmaps
ends kubectl get namespaces
shows examples "$(pod)" pod_watcher
WATCHLIST=1 shows examples "$(pod)" pod_watcher
shows 'Current pod count' "$(pod)" pod_reflector
shows 'nodes: ' "" node_reflector
shows examples "$(config_map "$(random)")" dynamic_watcher configmap
shows examples "$(config_map "$(random)")" errorbounded_configmap_watcher
shows examples "$(config_map "$(random)")" multi_watcher
shows 'examples' "$(manifest Secret '{name: examples}' 'stringData: {a: b}')" secret_reflector
kubectl apply -f examples/configmapgen_controller_crd.yaml >/dev/null
kubectl wait --for=condition=Established crd/configmapgenerators.nullable.se --timeout=30s >/dev/null
shows reconciled "$(cat examples/configmapgen_controller_object.yaml)" configmapgen_controller
shows Reconcil "$(cat examples/secret_syncer_configmap.yaml)" secret_syncer
exit "$failed"
