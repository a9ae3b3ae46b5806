package main

const name = `"metadata":{"name":"wire-check","labels":{"app":"wire"},"annotations":{"note":"ü"}}`

const pod = `{"metadata":{"labels":{"app":"wire"}},"spec":{"containers":[{"name":"c","image":"i",
 "ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"100m","memory":"1Gi"}},
 "env":[{"name":"E","valueFrom":{"configMapKeyRef":{"name":"m","key":"k","optional":true}}}],
 "readinessProbe":{"httpGet":{"path":"/","port":"http"},"periodSeconds":3},
 "volumeMounts":[{"name":"v","mountPath":"/v"}]}],
 "volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Mi"}},{"name":"w","configMap":{"name":"m"}}]`

const never = pod + `,"restartPolicy":"Never"}}`
const always = pod + `}}`

// examples are valid objects, by kind.
var examples = map[string]string{
	"ConfigMap":                      `{` + name + `,"data":{"k":"v","e":""},"binaryData":{"b":"AP8="},"immutable":false}`,
	"Secret":                         `{` + name + `,"data":{"k":"AP8="},"type":"Opaque"}`,
	"Service":                        `{` + name + `,"spec":{"selector":{"app":"wire"},"ports":[{"name":"http","port":80,"targetPort":"http"},{"name":"x","port":81,"targetPort":8081}]}}`,
	"ServiceAccount":                 `{` + name + `,"automountServiceAccountToken":false}`,
	"Endpoints":                      `{` + name + `,"subsets":[{"addresses":[{"ip":"10.1.1.1"}],"ports":[{"port":80}]}]}`,
	"LimitRange":                     `{` + name + `,"spec":{"limits":[{"type":"Container","max":{"cpu":"4"}}]}}`,
	"ResourceQuota":                  `{` + name + `,"spec":{"hard":{"pods":"1k","requests.cpu":"100"}}}`,
	"PersistentVolumeClaim":          `{` + name + `,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	"PersistentVolume":               `{` + name + `,"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}}`,
	"PodTemplate":                    `{` + name + `,"template":` + always + `}`,
	"ReplicationController":          `{` + name + `,"spec":{"replicas":0,"selector":{"app":"wire"},"template":` + always + `}}`,
	"Deployment":                     `{` + name + `,"spec":{"replicas":0,"selector":{"matchLabels":{"app":"wire"}},"template":` + always + `}}`,
	"ReplicaSet":                     `{` + name + `,"spec":{"replicas":0,"selector":{"matchLabels":{"app":"wire"}},"template":` + always + `}}`,
	"StatefulSet":                    `{` + name + `,"spec":{"replicas":0,"serviceName":"s","selector":{"matchLabels":{"app":"wire"}},"template":` + always + `}}`,
	"DaemonSet":                      `{` + name + `,"spec":{"selector":{"matchLabels":{"app":"wire"}},"template":` + always + `}}`,
	"Job":                            `{` + name + `,"spec":{"suspend":true,"template":` + never + `}}`,
	"CronJob":                        `{` + name + `,"spec":{"schedule":"*/5 * * * *","suspend":true,"jobTemplate":{"spec":{"template":` + never + `}}}}`,
	"HorizontalPodAutoscaler":        `{` + name + `,"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"minReplicas":2,"maxReplicas":4,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}`,
	"PodDisruptionBudget":            `{` + name + `,"spec":{"maxUnavailable":"30%","selector":{"matchLabels":{"app":"wire"}}}}`,
	"NetworkPolicy":                  `{` + name + `,"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],"ports":[{"port":80,"protocol":"TCP"}]}]}}`,
	"Ingress":                        `{` + name + `,"spec":{"rules":[{"host":"a.b","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}`,
	"IngressClass":                   `{` + name + `,"spec":{"controller":"a.b/c"}}`,
	"Role":                           `{` + name + `,"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`,
	"RoleBinding":                    `{` + name + `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u","apiGroup":"rbac.authorization.k8s.io"}]}`,
	"ClusterRole":                    `{` + name + `,"rules":[{"nonResourceURLs":["/x"],"verbs":["get"]}],"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"x":"y"}}]}}`,
	"ClusterRoleBinding":             `{` + name + `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"},"subjects":[{"kind":"Group","name":"g","apiGroup":"rbac.authorization.k8s.io"}]}`,
	"Lease":                          `{` + name + `,"spec":{"holderIdentity":"h","renewTime":"2026-01-02T03:04:05.000006Z","leaseDurationSeconds":15}}`,
	"PriorityClass":                  `{` + name + `,"value":7,"globalDefault":false}`,
	"RuntimeClass":                   `{` + name + `,"handler":"h","overhead":{"podFixed":{"cpu":"1"}}}`,
	"StorageClass":                   `{` + name + `,"provisioner":"a.b/c","parameters":{"x":"y"}}`,
	"CSIDriver":                      `{` + name + `,"spec":{"attachRequired":false,"tokenRequests":[{"audience":"a"}]}}`,
	"EndpointSlice":                  `{` + name + `,"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}}],"ports":[{"name":"p","port":80}]}`,
	"ValidatingWebhookConfiguration": `{` + name + `,"webhooks":[{"name":"a.b.c","failurePolicy":"Ignore","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:9/x"},"rules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nothings"]}]}]}`,
	"ValidatingAdmissionPolicy":      `{` + name + `,"spec":{"failurePolicy":"Ignore","matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nothings"]}]},"validations":[{"expression":"true","message":"m"}]}}`,
	"FlowSchema":                     `{` + name + `,"spec":{"priorityLevelConfiguration":{"name":"exempt"},"matchingPrecedence":100,"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}]}}`,
	"CustomResourceDefinition":       `{"metadata":{"name":"wires.check.example.com"},"spec":{"group":"check.example.com","scope":"Namespaced","names":{"kind":"Wire","plural":"wires"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"},"default":["q"]},"b":{"type":"object","additionalProperties":{"type":"integer","minimum":1.5}},"c":{"x-kubernetes-preserve-unknown-fields":true,"type":"object"}}}}}}}]}}`,
}
