//! The product on a cluster of real kubelet nodes, installed as users install it: every process is a pod.

mod cluster;
mod helm;
mod manifests;
