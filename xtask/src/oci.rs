//! An OCI image (image-spec 1.0: one layer, one platform) as an image layout in one tar file.
//!
//! The same input gives the same bytes, so that builds are reproducible.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType};

use crate::elf::Architecture;
use crate::file_tree::{FileTree, append};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const COMPRESSED_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The content and settings of an image. [`Image::write`] makes the file.
#[derive(Clone, Debug)]
pub struct Image {
    reference: String,
    architecture: Architecture,
    entrypoint: Vec<String>,
    env: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    user: Option<String>,
    compressed: bool,
    files: FileTree,
}

impl Image {
    /// `reference` is the name that pods use, with host and tag: `localhost/knmstate:dev`.
    pub fn new(reference: &str, architecture: Architecture) -> Result<Self> {
        tag_of(reference)?;
        Ok(Self {
            reference: reference.to_owned(),
            architecture,
            entrypoint: Vec::new(),
            env: BTreeMap::new(),
            labels: BTreeMap::new(),
            user: None,
            compressed: false,
            files: FileTree::default(),
        })
    }

    /// The files in its only layer.
    pub fn files(&mut self) -> &mut FileTree {
        &mut self.files
    }

    /// The program that a container starts, with its arguments.
    #[must_use]
    pub fn entrypoint(mut self, argv: &[&str]) -> Self {
        self.entrypoint = argv.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Sets an environment variable of containers.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets a label of the image.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// `uid` or `uid:gid`. Numbers only: an image without /etc/passwd has no names.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Compresses the layer, as registries keep it. An uncompressed one is quicker to write, for use on the same host.
    #[must_use]
    pub fn compressed(mut self) -> Self {
        self.compressed = true;
        self
    }

    /// Writes the whole image, and returns how many bytes a node downloads for it.
    pub fn write(&self, to: impl Write) -> Result<usize> {
        let files = Blob::new(LAYER, self.files.to_tar()?);
        let config = Blob::new(CONFIG, to_json(&self.config(&files))?);
        let layer =
            if self.compressed { Blob::new(COMPRESSED_LAYER, compress(&files.bytes)?) } else { files };
        let manifest = Blob::new(MANIFEST, to_json(&manifest(&config, &layer))?);
        let index = to_json(&self.index(&manifest)?)?;

        let mut tar = Builder::new(to);
        let mut add =
            |path: &str, bytes: &[u8]| append(&mut tar, Path::new(path), EntryType::Regular, 0o644, bytes);
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add("index.json", &index)?;
        for blob in [&manifest, &config, &layer] {
            add(&format!("blobs/sha256/{}", blob.sha256), &blob.bytes)?;
        }
        tar.into_inner()?.flush()?;
        Ok([&manifest, &config, &layer].map(|blob| blob.bytes.len()).iter().sum())
    }

    /// The configuration names a layer by the digest of its uncompressed files, the manifest by that of its blob.
    fn config(&self, files: &Blob) -> Value {
        let env: Vec<String> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut process = json!({ "Entrypoint": self.entrypoint, "Env": env, "Labels": self.labels });
        if let Some(user) = &self.user {
            process["User"] = json!(user);
        }
        json!({
            "created": "1970-01-01T00:00:00Z",
            "architecture": self.architecture.name(),
            "os": "linux",
            "config": process,
            "rootfs": { "type": "layers", "diff_ids": [files.digest()] },
        })
    }

    fn index(&self, manifest: &Blob) -> Result<Value> {
        let mut descriptor = manifest.descriptor();
        descriptor["platform"] = json!({ "architecture": self.architecture.name(), "os": "linux" });
        descriptor["annotations"] = json!({
            // containerd and Docker take the whole name from the first, others the tag from the second.
            "io.containerd.image.name": self.reference,
            "org.opencontainers.image.ref.name": tag_of(&self.reference)?,
        });
        Ok(json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] }))
    }
}

fn manifest(config: &Blob, layer: &Blob) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
    })
}

struct Blob {
    media_type: &'static str,
    sha256: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        Self { media_type, sha256: sha256_hex(&bytes), bytes }
    }

    fn digest(&self) -> String {
        format!("sha256:{}", self.sha256)
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest(), "size": self.bytes.len() })
    }
}

/// Compresses by gzip, without the time in its header, which would change the digest.
fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packer.write_all(bytes)?;
    packer.finish().context("cannot compress the layer")
}

fn to_json(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).context("cannot write JSON")
}

fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn tag_of(reference: &str) -> Result<&str> {
    let (name, tag) = reference.rsplit_once(':').unwrap_or((reference, ""));
    let (host, path) = name.split_once('/').unwrap_or(("", ""));
    ensure!(
        !tag.is_empty() && !tag.contains('/') && !host.is_empty() && !path.is_empty(),
        "{reference:?} is not a full image name; write host/name:tag, for example localhost/knmstate:dev"
    );
    Ok(tag)
}

#[cfg(test)]
mod tests;
