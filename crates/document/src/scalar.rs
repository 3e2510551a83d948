//! Numbers and truth values in documents written by people, who quote them or not.

use std::net::IpAddr;

use serde_json::Value;

/// A whole number, also one in quotes or in hexadecimal.
pub fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    }
}

/// A truth value, also one in quotes.
pub fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "y" => Some(true),
            "false" | "no" | "off" | "0" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Whether two values that are neither lists nor maps mean the same: quotes do not matter, and an address may be
/// spelled in any way.
pub fn same(a: &Value, b: &Value) -> bool {
    let address = |text: &str| text.parse::<IpAddr>().ok();
    a == b
        || match (a, b) {
            (Value::String(a), Value::String(b)) => address(a).is_some_and(|a| address(b) == Some(a)),
            (Value::Number(_), _) | (_, Value::Number(_)) => {
                number(a).is_some_and(|number_a| number(b) == Some(number_a))
            }
            (Value::Bool(_), _) | (_, Value::Bool(_)) => {
                truth(a).is_some_and(|truth_a| truth(b) == Some(truth_a))
            }
            _ => false,
        }
}

/// Whether two values mean the same, entry by entry and key by key.
pub fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (a, b) => same(a, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quotes_do_not_change_the_meaning() {
        for (a, b, equal) in [
            (json!(1500), json!("1500"), true),
            (json!("0x10"), json!(16), true),
            (json!(true), json!("yes"), true),
            (json!("off"), json!(false), true),
            (json!("eth0"), json!("eth0"), true),
            (json!(1500), json!("1500x"), false),
            (json!(true), json!("eth0"), false),
            (json!("eth0"), json!("eth1"), false),
            (json!("one"), json!(1), false),
            (json!("FD00:0::1"), json!("fd00::1"), true),
            (json!("fd00::1"), json!("fd00::2"), false),
            (json!("1"), json!("yes"), false),
        ] {
            assert_eq!(same(&a, &b), equal, "{a} and {b}");
            assert_eq!(same(&b, &a), equal, "{b} and {a}");
            let [a, b] = [a, b].map(|value| json!({ "list": [value] }));
            assert_eq!(same_value(&a, &b), equal, "{a} and {b}");
            assert!(!same_value(&a, &json!({ "list": [] })) && !same_value(&a, &json!({})));
        }
    }
}
