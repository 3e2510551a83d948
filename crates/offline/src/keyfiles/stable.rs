//! The same files for the same state: nmstate keeps routing rules in sets, so their order, and sometimes their file, is
//! random. A file that changes reboots the machines that get it.

use super::Keyfile;
use knmstate_document::routing::MAIN_TABLE;

/// Moves each routing rule to the file that it belongs to, and sorts the rules. The files are sorted.
pub(super) fn make_stable(files: &mut [Keyfile]) {
    for family in ["[ipv4]", "[ipv6]"] {
        let mut sections: Vec<Section> = files.iter().map(|file| Section::of(&file.text, family)).collect();
        let rules: Vec<(usize, String)> = sections
            .iter_mut()
            .enumerate()
            .flat_map(|(home, section)| {
                std::mem::take(&mut section.rules).into_iter().map(move |rule| (home, rule))
            })
            .collect();
        for (home, rule) in rules {
            let home = settled_home(home, &rule, &sections);
            sections[home].rules.push(rule);
        }
        for (file, section) in files.iter_mut().zip(sections) {
            if !section.rules.is_empty() || file.text.contains("\nrouting-rule") {
                file.text = section.into_text();
            }
        }
    }
}

/// A rule is kept by an interface with routes of its table, and of several by the first.
fn settled_home(home: usize, rule: &str, sections: &[Section]) -> usize {
    let words: Vec<&str> = rule.split(' ').collect();
    let after = |word: &str| words.iter().position(|other| *other == word).and_then(|at| words.get(at + 1));
    if after("iif").is_some() {
        return home;
    }
    let table = after("table").map_or_else(|| MAIN_TABLE.to_string(), |table| (*table).to_owned());
    let has_routes = |section: &Section| section.tables.contains(&table);
    if has_routes(&sections[home]) { sections.iter().position(has_routes).unwrap_or(home) } else { home }
}

/// One section of a file, without its rules, and what is before and after it.
struct Section {
    before: String,
    lines: String,
    after: String,
    rules: Vec<String>,
    /// The tables that its routes are in.
    tables: Vec<String>,
}

impl Section {
    fn of(text: &str, header: &str) -> Self {
        let (before, rest) = match text.find(&format!("{header}\n")) {
            Some(start) => text.split_at(start + header.len() + 1),
            None => (text, ""),
        };
        let (section, after) = rest.split_at(rest.find("\n[").unwrap_or(rest.len()));
        let mut found = Self {
            before: before.to_owned(),
            lines: String::new(),
            after: after.to_owned(),
            rules: Vec::new(),
            tables: Vec::new(),
        };
        for line in section.lines() {
            match line.split_once('=') {
                Some((key, rule)) if key.starts_with("routing-rule") => {
                    found.rules.push(rule.to_owned());
                    continue;
                }
                Some((key, options)) if key.starts_with("route") && key.ends_with("_options") => {
                    let table = options.split(',').find_map(|option| option.strip_prefix("table="));
                    found.tables.extend(table.map(str::to_owned));
                }
                _ => {}
            }
            found.lines.push_str(line);
            found.lines.push('\n');
        }
        found
    }

    fn into_text(mut self) -> String {
        self.rules.sort_unstable();
        let rules = numbered(&self.rules);
        // A blank line ends a section that another one follows.
        let lines = self.lines.strip_suffix("\n\n").map_or(self.lines.clone(), |lines| format!("{lines}\n"));
        format!("{}{lines}{rules}{}", self.before, self.after)
    }
}

/// Rules as lines of a file.
fn numbered(rules: &[impl std::fmt::Display]) -> String {
    let lines = rules.iter().enumerate().map(|(number, rule)| format!("routing-rule{number}={rule}\n"));
    lines.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, ipv4: &str) -> Keyfile {
        let text =
            format!("[connection]\nid={name}\n\n[ipv4]\nmethod=manual\n{ipv4}\n[ipv6]\nmethod=disabled\n");
        Keyfile { name: name.to_owned(), text }
    }

    #[test]
    fn rules_are_in_order_and_with_the_first_that_has_routes_of_their_table() {
        let route = |table: u32| format!("route0=10.9.0.0/16,,0\nroute0_options=table={table},src=1\n");
        let (a, b, c) =
            ("priority 1 from 10.0.0.0/8 table 7", "priority 2 table 9", "priority 3 iif c table 7");
        let expected = [
            file("a", &(route(9) + &numbered(&[b]))),
            file("b", &(route(7) + &numbered(&[a]))),
            file("c", &(route(7) + &numbered(&[c]))),
        ];
        for mut files in [
            [
                file("a", &(route(9) + &numbered(&[b]))),
                file("b", &route(7)),
                file("c", &(route(7) + &numbered(&[c, a]))),
            ],
            [
                file("a", &(route(9) + &numbered(&[b]))),
                file("b", &(route(7) + &numbered(&[a]))),
                file("c", &(route(7) + &numbered(&[c]))),
            ],
        ] {
            make_stable(&mut files);
            for (file, expected) in files.iter().zip(&expected) {
                assert_eq!(file.text, expected.text);
            }
        }
        // Where no interface has routes of the table, nmstate's choice is not one of chance.
        let mut alone = [file("a", ""), file("b", &numbered(&["priority 2 table 5", "priority 1 table 5"]))];
        make_stable(&mut alone);
        assert_eq!(alone[1].text, file("b", &numbered(&["priority 1 table 5", "priority 2 table 5"])).text);
        assert_eq!(alone[0].text, file("a", "").text);
    }
}
