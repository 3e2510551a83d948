//! Changes JSON documents so that they stay JSON: most mutations of bytes would only exercise the parser.

use serde_json::{Map, Value, json};

/// A small generator of pseudo-random numbers. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`, which must not be zero.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or_default()
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }
}

/// How deep an inserted value is nested at most. serde_json refuses more than 128 levels.
const DEEPEST: usize = 120;

/// A mutation of a document. `others` supply the keys and values that it inserts.
pub fn mutate(document: &Value, others: &[Value], random: &mut Random) -> Value {
    let mut document = document.clone();
    for _ in 0..=random.below(4) {
        let places = count(&document);
        let mut place = random.below(places);
        change(&mut document, &mut place, others, random);
    }
    document
}

/// How many values there are, containers included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(entries) => entries.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes the value at this place, counted in the order of the document; true when that is done.
fn change(value: &mut Value, place: &mut usize, others: &[Value], random: &mut Random) -> bool {
    if *place == 0 {
        replace(value, others, random);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(entries) => entries.iter_mut().any(|entry| change(entry, place, others, random)),
        Value::Object(map) => map.values_mut().any(|below| change(below, place, others, random)),
        _ => false,
    }
}

fn replace(value: &mut Value, others: &[Value], random: &mut Random) {
    match (random.below(6), &mut *value) {
        (0 | 1, Value::Array(entries)) => change_entries(entries, others, random),
        (0 | 1, Value::Object(map)) => change_keys(map, others, random),
        (0 | 1, Value::String(text)) => change_text(text, random),
        (0 | 1, Value::Number(_)) => *value = number(random),
        (2, _) => *value = nested(value.clone(), random),
        (3, _) => *value = scalar(random),
        _ => {
            if let Some(part) = random.of(others).and_then(|other| part_of(other, random)) {
                *value = part;
            }
        }
    }
}

fn change_entries(entries: &mut Vec<Value>, others: &[Value], random: &mut Random) {
    let index = random.below(entries.len());
    match random.below(4) {
        0 if !entries.is_empty() => drop(entries.remove(index)),
        1 => entries.extend(entries.get(index).cloned()),
        2 => entries.reverse(),
        _ => entries.extend(random.of(others).and_then(|other| part_of(other, random))),
    }
}

fn change_keys(map: &mut Map<String, Value>, others: &[Value], random: &mut Random) {
    let key = map.keys().nth(random.below(map.len())).cloned();
    match (random.below(4), key) {
        (0, Some(key)) => drop(map.shift_remove(&key)),
        // A misspelt key.
        (1, Some(key)) => {
            let mut other = key.clone();
            change_text(&mut other, random);
            if let Some(value) = map.shift_remove(&key) {
                map.insert(other, value);
            }
        }
        _ => {
            let object = random.of(others).and_then(|other| object_in(other, random));
            let entry = object.as_ref().and_then(|object| object.iter().nth(random.below(object.len())));
            map.extend(entry.map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}

fn change_text(text: &mut String, random: &mut Random) {
    const INSERTED: [&str; 16] = [
        "",
        " ",
        "x",
        "0",
        "-",
        "/",
        ":",
        ".",
        "{{ ",
        " }}",
        "capture.",
        "\u{0}",
        "é",
        "| ",
        ":= ",
        "99999999999",
    ];
    let starts: Vec<usize> = text.char_indices().map(|(index, _)| index).chain([text.len()]).collect();
    let start = random.of(&starts).copied().unwrap_or_default();
    match random.below(3) {
        0 => text.insert_str(start, random.of(&INSERTED).copied().unwrap_or_default()),
        1 => text.truncate(start),
        _ => *text = text.repeat(1 + random.below(3)),
    }
}

fn number(random: &mut Random) -> Value {
    let numbers = [
        json!(0),
        json!(-1),
        json!(1),
        json!(32),
        json!(128),
        json!(254),
        json!(4095),
        json!(65_536),
        json!(u32::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1.5),
        json!(1e300),
    ];
    random.of(&numbers).cloned().unwrap_or_default()
}

fn scalar(random: &mut Random) -> Value {
    match random.below(5) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(""),
        3 => json!([]),
        _ => number(random),
    }
}

fn nested(mut value: Value, random: &mut Random) -> Value {
    for _ in 0..random.below(DEEPEST) {
        value = if random.below(2) == 0 { json!([value]) } else { json!({ "name": value }) };
    }
    value
}

/// Any value of a document.
fn part_of(value: &Value, random: &mut Random) -> Option<Value> {
    at(value, &mut random.below(count(value))).cloned()
}

/// The value at this place, counted in the order of the document.
fn at<'a>(value: &'a Value, place: &mut usize) -> Option<&'a Value> {
    if *place == 0 {
        return Some(value);
    }
    *place -= 1;
    match value {
        Value::Array(entries) => entries.iter().find_map(|entry| at(entry, place)),
        Value::Object(map) => map.values().find_map(|below| at(below, place)),
        _ => None,
    }
}

/// Any object of a document that is not empty.
fn object_in(value: &Value, random: &mut Random) -> Option<Map<String, Value>> {
    (0..8).find_map(|_| match part_of(value, random) {
        Some(Value::Object(map)) if !map.is_empty() => Some(map),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_mutations_and_others_give_others() {
        let document = json!({ "interfaces": [{ "name": "eth1", "mtu": 1500 }], "routes": { "config": [] } });
        let others = [json!({ "dns-resolver": { "config": { "server": ["192.0.2.1"] } } })];
        let all = |seed: u64| -> Vec<Value> {
            let mut random = Random::new(seed);
            (0..100).map(|_| mutate(&document, &others, &mut random)).collect()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        let changed = all(3).into_iter().filter(|mutation| *mutation != document).count();
        assert!(changed > 80, "only {changed} of 100 differ");
    }
}
