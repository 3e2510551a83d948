//! Builds container images, without a container engine.
//!
//! [`oci::Image`] turns files into an OCI image layout in one tar file, which `ctr images import`, `podman load` and
//! `docker load` read. [`knmstate_image`] builds the image of knmstate.

pub mod elf;
pub mod file_tree;
pub mod knmstate_image;
pub mod oci;
