//! Converts Argo Workflows, Tekton and Kontroler objects into DAGs.
