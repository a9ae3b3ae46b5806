// Package conformance holds no code: it names the Kubernetes packages that its module builds.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
