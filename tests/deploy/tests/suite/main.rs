//! The image, the chart and the kustomize base.

mod alerts;
mod chart;
mod cluster;
mod faults;
mod gitops;
mod image;
mod kustomize;
mod node;
mod pairs;
mod processes;
mod program;
