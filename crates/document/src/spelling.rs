//! How much two words differ, to name the one that was probably meant.

/// How many characters have to be added, removed or replaced to get from one to the other.
pub fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, left) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, right) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_character_counts() {
        for (one, other, expected) in
            [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("a", "a", 0), ("ä", "a", 1)]
        {
            assert_eq!(edit_distance(one, other), expected, "{one} {other}");
        }
    }
}
