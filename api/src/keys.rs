//! Labels, annotations, finalizers, condition types and names that several programs must agree on.

/// Annotation on every object of a list or watch over several planes: the plane that it came from. Also the extra key with
/// which an aggregated server is told for which plane a request is; [`PROJECT`] and [`ORGANIZATION`] are such keys too.
pub const PLANE_ANNOTATION: &str = "freehold.dev/plane";
/// Label with the name of the project that an object of the core or infra plane belongs to, and annotation on objects
/// listed over an organization's projects. Also the project controller's finalizer.
pub const PROJECT: &str = "resourcemanager.freehold.dev/project";
/// Label with the name of the organization that an object of the core or infra plane belongs to.
pub const ORGANIZATION: &str = "resourcemanager.freehold.dev/organization";
/// Annotation of an organization whose projects go with it: `true` (delete it with the propagation `Foreground` to set it).
pub const DELETE_PROJECTS: &str = "resourcemanager.freehold.dev/delete-projects";
/// Finalizer of a ProjectControlPlane, held by the provisioner.
pub const PROVISIONER_FINALIZER: &str = "infrastructure.freehold.dev/provisioner";
/// Label with the uid of the project on everything that the provisioner makes for it.
pub const PROJECT_UID: &str = "infrastructure.freehold.dev/project-uid";
/// The condition that `kubectl wait` waits for.
pub const READY: &str = "Ready";
/// Annotation of a ProjectControlPlane: when somebody last used its pair, about. The core servers write it.
pub const LAST_REQUEST: &str = "infrastructure.freehold.dev/last-request";
/// The reason of a pair that is not ready because it was put to rest.
pub const ASLEEP: &str = "Asleep";
/// The reason of a pair that is not ready because it comes back from its rest.
pub const WAKING: &str = "Waking";
/// The condition that tells how far a deletion is.
pub const TERMINATING: &str = "Terminating";
/// The class of a project that names none.
pub const DEFAULT_CLASS: &str = "default";
/// The key of a kubeconfig Secret that holds the kubeconfig.
pub const KUBECONFIG_KEY: &str = "kubeconfig";

/// The namespace of the core plane in which roles and bindings reach everything, and the predefined roles are.
pub const SYSTEM_NAMESPACE: &str = "freehold-system";

/// What the names of organizations' namespaces in the core plane begin with.
const ORGANIZATION_NAMESPACE: &str = freehold_machinery::tenancy::NAMESPACE;

/// The namespace of an organization in the core plane.
pub fn organization_namespace(organization: &str) -> String {
    format!("{ORGANIZATION_NAMESPACE}{organization}")
}

/// The organization of a namespace of the core plane, if it is one's.
pub fn organization_of(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(ORGANIZATION_NAMESPACE)
}

/// How the names of the Secrets with projects' kubeconfigs end.
pub const KUBECONFIG_SUFFIX: &str = "-kubeconfig";
/// The user of a project's kubeconfig, who is in `system:masters` of its plane.
pub const PROJECT_ADMIN: &str = "freehold:project-admin";

/// The name of the Secret with a project's kubeconfig, in its organization's namespace.
pub fn kubeconfig_secret(project: &str) -> String {
    format!("{project}{KUBECONFIG_SUFFIX}")
}

/// The namespace of a dedicated pair in the infra plane, by the project's uid.
pub fn pair_namespace(project_uid: &str) -> String {
    format!("project-{project_uid}")
}

/// The common name of the certificate with which a plane's aggregated servers are reached.
pub fn aggregator_name(plane: &str) -> String {
    format!("aggregator:{plane}")
}
