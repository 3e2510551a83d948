//! What the rig promises, proved on the parts themselves. One binary, so that it is linked once and runs in parallel.

mod admission_rules;
mod admission_webhook;
mod api_server;
mod cluster;
mod controller_doors;
mod crds;
mod delivery;
mod ephemeral;
mod examples;
mod handler;
mod handler_process;
mod installation;
mod kube_node;
mod kubernetes_store;
mod lab;
mod leases;
mod network_manager_host;
mod nm_node;
mod node_commands;
mod node_guard;
mod operator;
mod render;
mod rollout;
mod standalone;
mod standalone_full_kernel;
mod uml_node;
