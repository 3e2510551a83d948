//! The version that the program reports.

/// The package's version, or the one that the build set.
const BUILT_AS: &str = match option_env!("KNMSTATE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// What `--version` prints and every role logs at its start.
#[cfg(not(debug_assertions))]
pub fn version() -> &'static str {
    BUILT_AS
}

/// The same in a debug build, where an image can set another version by `KNMSTATE_TEST_VERSION`. The upgrade test gets
/// two versions from one build. Release builds do not read the variable.
#[cfg(debug_assertions)]
pub fn version() -> &'static str {
    use std::sync::OnceLock;
    static OVERRIDE: OnceLock<Option<String>> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "not an option of the program: users never see it")]
    let read = || std::env::var("KNMSTATE_TEST_VERSION").ok();
    OVERRIDE.get_or_init(read).as_deref().unwrap_or(BUILT_AS)
}
