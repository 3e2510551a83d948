//! The flag for how long changes last.

use knmstate_api::Persistence;

/// The flag itself.
#[derive(clap::Args, Clone, Debug)]
pub struct PersistenceArgs {
    /// How long changes last: Persistent, on this machine's disk, or Ephemeral, in NetworkManager's memory and gone with
    /// a reboot, after which they are made again [default: Persistent]
    // A text, because manifests set the variable to nothing where nothing is chosen.
    #[arg(long, env = "NMSTATE_PERSISTENCE", value_name = "PERSISTENCE", value_parser = parse)]
    persistence: Option<Persistence>,
}

impl PersistenceArgs {
    pub fn get(&self) -> Persistence {
        self.persistence.unwrap_or_default()
    }

    pub fn is_memory_only(&self) -> bool {
        self.get() == Persistence::Ephemeral
    }
}

fn parse(text: &str) -> Result<Persistence, String> {
    if text.is_empty() { Ok(Persistence::default()) } else { text.parse() }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: PersistenceArgs,
    }

    #[test]
    fn it_is_written_as_in_the_api_and_nothing_is_the_default() {
        let get = |value: &str| {
            Cli::try_parse_from(["x", &format!("--persistence={value}")])
                .map(|cli| cli.args.get())
                .map_err(|error| error.to_string())
        };
        assert_eq!(get("Ephemeral"), Ok(Persistence::Ephemeral));
        assert_eq!(get("Persistent"), Ok(Persistence::Persistent));
        assert_eq!(get(""), Ok(Persistence::Persistent));
        for wrong in ["ephemeral", "memory", " Ephemeral"] {
            let why = get(wrong).unwrap_err();
            assert!(why.contains("Persistent or Ephemeral"), "{why}");
        }
    }
}
