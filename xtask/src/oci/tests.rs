use std::io::Read;

use super::*;

fn example() -> Image {
    let mut image = Image::new("localhost/knmstate:dev", Architecture::Amd64)
        .unwrap()
        .entrypoint(&["/usr/bin/knmstate"])
        .env("PATH", "/usr/bin")
        .env("HOME", "/")
        .label("org.opencontainers.image.licenses", "Apache-2.0")
        .user("65532:65532");
    image.files().file("/usr/bin/knmstate", 0o755, b"program".to_vec()).unwrap();
    image.files().symlink("/usr/bin/nmstatectl", "knmstate").unwrap();
    image.files().dir("/tmp", 0o1777).unwrap();
    image
}

fn bytes_of(image: &Image) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.write(&mut bytes).unwrap();
    bytes
}

/// The layout as a reader sees it.
struct Layout(BTreeMap<String, Vec<u8>>);

impl Layout {
    fn read(bytes: &[u8]) -> Self {
        let mut archive = tar::Archive::new(bytes);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (path, content)
        });
        Self(entries.collect())
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.0[path]).unwrap()
    }

    /// Follows a descriptor as a registry client does: the blob must be there, of that size and digest.
    fn blob(&self, descriptor: &Value, media_type: &str) -> &[u8] {
        assert_eq!(descriptor["mediaType"], media_type);
        let digest = descriptor["digest"].as_str().unwrap();
        let hex = digest.strip_prefix("sha256:").unwrap();
        let content = &self.0[&format!("blobs/sha256/{hex}")];
        assert_eq!(sha256_hex(content), hex);
        assert_eq!(descriptor["size"], content.len());
        content
    }
}

#[test]
fn every_reference_leads_to_its_blob() {
    let layout = Layout::read(&bytes_of(&example()));
    assert_eq!(layout.json("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }));

    let index = layout.json("index.json");
    assert_eq!(index["schemaVersion"], 2);
    let manifests = index["manifests"].as_array().unwrap();
    assert_eq!(manifests.len(), 1);
    assert_eq!(manifests[0]["platform"], json!({ "architecture": "amd64", "os": "linux" }));
    assert_eq!(manifests[0]["annotations"]["io.containerd.image.name"], "localhost/knmstate:dev");
    assert_eq!(manifests[0]["annotations"]["org.opencontainers.image.ref.name"], "dev");

    let manifest: Value = serde_json::from_slice(layout.blob(&manifests[0], MANIFEST)).unwrap();
    let config: Value = serde_json::from_slice(layout.blob(&manifest["config"], CONFIG)).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1);
    let layer = layout.blob(&layers[0], LAYER);

    // Uncompressed: what unpacks is what was digested.
    assert_eq!(config["rootfs"]["diff_ids"], json!([layers[0]["digest"]]));
    assert_eq!(config["architecture"], "amd64");
    assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/knmstate"]));
    assert_eq!(config["config"]["Env"], json!(["HOME=/", "PATH=/usr/bin"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.licenses"], "Apache-2.0");

    let files = Layout::read(layer);
    assert_eq!(files.0["usr/bin/knmstate"], b"program");
    assert_eq!(layout.0.len(), 5, "nothing but layout, index, manifest, config and layer");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    assert_eq!(bytes_of(&example()), bytes_of(&example()));
    let mut other = example();
    other.files().file("/etc/more", 0o644, vec![]).unwrap();
    assert_ne!(bytes_of(&other), bytes_of(&example()));
}

#[test]
fn a_compressed_layer_unpacks_to_what_the_config_names() {
    let bytes = bytes_of(&example().compressed());
    assert_eq!(bytes, bytes_of(&example().compressed()));
    let layout = Layout::read(&bytes);
    let manifest: Value =
        serde_json::from_slice(layout.blob(&layout.json("index.json")["manifests"][0], MANIFEST)).unwrap();
    let config: Value = serde_json::from_slice(layout.blob(&manifest["config"], CONFIG)).unwrap();
    let layer = layout.blob(&manifest["layers"][0], COMPRESSED_LAYER);

    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(layer).read_to_end(&mut unpacked).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", sha256_hex(&unpacked))]));
    assert_eq!(Layout::read(&unpacked).0["usr/bin/knmstate"], b"program");
    // Bytes 4 to 8 of a gzip header are the time, which would make two builds differ.
    assert_eq!(layer[4..8], [0; 4]);
}

#[test]
fn a_name_without_host_or_tag_is_refused() {
    for name in
        ["knmstate", "knmstate:dev", "localhost/knmstate", "localhost:5000/knmstate", "localhost/:dev", ""]
    {
        assert!(Image::new(name, Architecture::Amd64).is_err(), "{name:?}");
    }
    assert!(Image::new("localhost:5000/a/knmstate:1.0", Architecture::Arm64).is_ok());
}

#[test]
fn without_a_user_the_config_names_none() {
    let image = Image::new("localhost/pause:dev", Architecture::S390x).unwrap();
    let layout = Layout::read(&bytes_of(&image));
    let manifest: Value =
        serde_json::from_slice(layout.blob(&layout.json("index.json")["manifests"][0], MANIFEST)).unwrap();
    let config: Value = serde_json::from_slice(layout.blob(&manifest["config"], CONFIG)).unwrap();
    assert_eq!(config["architecture"], "s390x");
    assert!(config["config"].get("User").is_none());
}
