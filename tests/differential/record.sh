#!/usr/bin/env bash
# Records kube-apiserver's answers to requests/*.yaml into recorded/: a real etcd, kube-apiserver and
# kube-controller-manager from .tools/bin, on loopback, in a temporary folder. `make differential` runs it. What follows
# the program's path says which parts: `requests`, `requests SCENARIO`, `examples`, `rules`, or `rules FILE`.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../.tools/bin
folder=$(mktemp -d)
pids=()
stop() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap stop EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
etcd=$(free_port) peer=$(free_port) port=$(free_port) manager=$(free_port)
cd "$folder"
openssl genrsa -out sa.key 2048 2>/dev/null
openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,kubernetes-admin,admin,system:masters" >tokens.csv

"$bin/etcd" --data-dir etcd --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" \
  --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
  --initial-cluster "default=http://127.0.0.1:$peer" >etcd.log 2>&1 &
pids+=($!)
"$bin/kube-apiserver" --etcd-servers "http://127.0.0.1:$etcd" --cert-dir certs --bind-address 127.0.0.1 --secure-port "$port" \
  --token-auth-file tokens.csv --authorization-mode RBAC --service-cluster-ip-range 10.96.0.0/16 --allow-privileged=true \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file sa.pub \
  --service-account-signing-key-file sa.key >apiserver.log 2>&1 &
pids+=($!)
for _ in $(seq 200); do
  curl -sk "https://127.0.0.1:$port/readyz" | grep -q '^ok$' && break
  sleep 0.3
done
cat >kubeconfig <<EOF
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:$port", certificate-authority-data: $(base64 -w0 certs/apiserver.crt)}}]
users: [{name: u, user: {token: $token}}]
EOF
# The controllers that make what each namespace has; the others would change what the scenarios look at.
"$bin/kube-controller-manager" --kubeconfig kubeconfig --service-account-private-key-file sa.key --cert-dir certs \
  --root-ca-file certs/apiserver.crt --leader-elect=false --bind-address 127.0.0.1 --secure-port "$manager" \
  --controllers=serviceaccount-controller,root-ca-certificate-publisher-controller,namespace-controller,clusterrole-aggregation-controller \
  >manager.log 2>&1 &
pids+=($!)
program=$1
shift
"$program" record "$folder/kubeconfig" "$@"
