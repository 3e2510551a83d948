//! Where in a document something is.

use std::error::Error;
use std::fmt;

/// A key of a network document, written the way a person would look for it:
/// `interfaces[bond0].link-aggregation.mode`, `routes.config[2].destination`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    interface: Option<String>,
    path: String,
}

impl Place {
    /// The document as a whole.
    pub fn document() -> Self {
        Self { interface: None, path: String::new() }
    }

    /// A key below the document, e.g. `routes.config[2].destination`.
    pub fn key(path: impl Into<String>) -> Self {
        Self { interface: None, path: path.into() }
    }

    /// An interface, by name.
    pub fn interface(name: impl Into<String>) -> Self {
        Self { interface: Some(name.into()), path: String::new() }
    }

    /// The key `name` below this place.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { interface: self.interface.clone(), path }
    }

    /// The entry `index` of the list at this place.
    #[must_use]
    pub fn entry(&self, index: usize) -> Self {
        Self { interface: self.interface.clone(), path: format!("{}[{index}]", self.path) }
    }

    /// The same place in an interface of another name.
    #[must_use]
    pub fn of_interface(self, name: &str) -> Self {
        Self { interface: Some(name.to_owned()), ..self }
    }

    /// The interface that is meant, if the place is inside one.
    pub fn interface_name(&self) -> Option<&str> {
        self.interface.as_deref()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.interface, self.path.as_str()) {
            (None, "") => f.write_str("the document"),
            (None, path) => f.write_str(path),
            (Some(name), "") => write!(f, "interfaces[{name}]"),
            (Some(name), path) => write!(f, "interfaces[{name}].{path}"),
        }
    }
}

/// A document that no machine can apply as it is written. It carries no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidDocument {
    pub place: Place,
    /// What is wrong there, without the place.
    pub why: String,
}

impl InvalidDocument {
    pub fn new(place: Place, why: impl Into<String>) -> Self {
        Self { place, why: why.into() }
    }
}

impl fmt::Display for InvalidDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl Error for InvalidDocument {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_paths() {
        for (place, text) in [
            (Place::document(), "the document"),
            (Place::key("routes.config").entry(2).below("destination"), "routes.config[2].destination"),
            (Place::interface("eth1.100"), "interfaces[eth1.100]"),
            (
                Place::interface("eth1").below("ipv4").below("address").entry(0).below("ip"),
                "interfaces[eth1].ipv4.address[0].ip",
            ),
        ] {
            assert_eq!(place.to_string(), text);
        }
        assert_eq!(Place::interface("eth1").below("mtu").interface_name(), Some("eth1"));
        assert_eq!(Place::key("routes").interface_name(), None);
    }
}
