//! What this machine can do.

/// What to do when the kernel refuses namespaces.
#[must_use]
pub fn namespace_advice(_rootless: bool) -> String {
    String::new()
}
