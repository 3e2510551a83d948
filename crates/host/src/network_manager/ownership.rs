//! Who owns an open change, and whether it is settled: decided by the journal and NetworkManager's checkpoints.

use std::time::Duration;

use super::journal::Entry;
use super::service::{self, Held};
use crate::host::{Checkpoint, Guard, OpenCheckpoint};

/// Now, on the clocks that outlive a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) boot: String,
    pub(super) ms: i64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { boot: service::boot_id(), ms: service::boot_time_ms() }
    }
}

/// Which of the open checkpoints belongs to the note, given that its NetworkManager still runs.
///
/// Before its name is known, it is the oldest that was made after the note: no client can have made one between,
/// because nmstate asks for one that tolerates no other, and we would have been refused.
pub(super) fn ours<'a>(entry: &Entry, held: &'a [Held]) -> Option<&'a Held> {
    match &entry.checkpoint {
        Some(path) => held.iter().find(|held| held.path == *path),
        None => {
            held.iter().filter(|held| held.created_ms >= entry.noted_at_ms).min_by_key(|held| held.created_ms)
        }
    }
}

/// `running` is the identity of the NetworkManager that holds it.
pub(super) fn is_ours(entry: &Entry, held: &Held, running: Option<&str>) -> bool {
    running == Some(&*entry.service) && ours(entry, std::slice::from_ref(held)).is_some()
}

/// Whether a note is about a change that is settled, so that nothing has to be done about it.
pub(super) fn is_settled(entry: &Entry, running: Option<&str>, held: &[Held]) -> bool {
    if entry.changes_nothing() {
        return false;
    }
    if running == Some(&*entry.service) {
        // It has not been restarted, and does not have the checkpoint: it has rolled back, or has committed.
        return ours(entry, held).is_none();
    }
    // Restarted, it keeps everything; and keeping it was the decision.
    entry.committing
}

/// Whether there is nothing left of a change by the clock alone.
pub(super) fn is_over(entry: &Entry, now: &Moment) -> bool {
    if entry.changes_nothing() {
        return left_open(entry, now).is_none();
    }
    // What was in memory went with the machine.
    entry.memory_only && entry.boot != now.boot
}

/// How long the change is still for another program to settle.
fn left_open(entry: &Entry, now: &Moment) -> Option<Duration> {
    let left = entry.left_open_until_ms? - now.ms;
    (entry.boot == now.boot && left > 0).then(|| Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

/// Everything that is open: what the note is about, and what others have open.
pub(super) fn list(
    entry: Option<&Entry>,
    running: Option<&str>,
    held: &[Held],
    now: &Moment,
) -> Vec<OpenCheckpoint> {
    let is_ours = |held: &Held| entry.is_some_and(|entry| is_ours(entry, held, running));
    let mut open = Vec::new();
    if let Some(entry) = entry
        && !held.iter().any(is_ours)
    {
        let left_open = left_open(entry, now).filter(|_| entry.changes_nothing());
        // Of a change that NetworkManager has forgotten nothing can be kept, so it is not left to another program any
        // more.
        let guard = left_open.map_or(Guard::Lost, Guard::RollsBackIn);
        open.push(OpenCheckpoint { checkpoint: entry.name(), ours: true, guard, left_open });
    }
    open.extend(held.iter().map(|held| OpenCheckpoint {
        checkpoint: Checkpoint::new(&held.path),
        ours: is_ours(held),
        // One without a timer stays as long as it likes.
        guard: Guard::RollsBackIn(held.rolls_back_in.unwrap_or(Duration::MAX)),
        left_open: entry.filter(|_| is_ours(held)).and_then(|entry| left_open(entry, now)),
    }));
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    const NM: Option<&str> = Some("bus :1.7");
    const NEXT_NM: Option<&str> = Some("bus :1.9");

    fn now(ms: i64) -> Moment {
        Moment { boot: "b1".to_owned(), ms }
    }

    fn entry() -> Entry {
        Entry {
            checkpoint: Some("/C/1".to_owned()),
            service: "bus :1.7".to_owned(),
            noted_at_ms: 1_000,
            boot: "b1".to_owned(),
            ..Entry::default()
        }
    }

    fn held() -> Held {
        Held { path: "/C/1".to_owned(), created_ms: 1_100, rolls_back_in: Some(Duration::from_mins(1)) }
    }

    fn of_note(entry: &Entry, running: Option<&str>, held: &[Held], at: i64) -> OpenCheckpoint {
        let list = list(Some(entry), running, held, &now(at));
        list.into_iter().find(|open| open.ours).expect("the change is in the list")
    }

    #[test]
    fn a_change_is_left_to_another_program_until_its_time_or_a_restart_of_network_manager() {
        let left = Entry { left_open_until_ms: Some(9_000), ..entry() };
        for (case, entry, running, held, at, expected) in [
            ("one that is being made", &entry(), NM, &[held()][..], 2_000, None),
            ("left open", &left, NM, &[held()], 2_000, Some(Duration::from_secs(7))),
            ("its time is over, and it is still there", &left, NM, &[held()], 9_000, None),
            ("forgotten by NetworkManager", &left, NEXT_NM, &[], 2_000, None),
            ("NetworkManager is down", &left, None, &[], 2_000, None),
        ] {
            let open = of_note(entry, running, held, at);
            assert_eq!(open.left_open, expected, "{case}");
            assert_eq!(open.is_ours_to_undo(), expected.is_none(), "{case}");
            assert_eq!(open.guard == Guard::Lost, running != NM, "{case}");
        }
    }

    #[test]
    fn what_was_in_memory_is_over_with_a_reboot_and_what_was_on_disk_is_not() {
        let rebooted = Moment { boot: "b2".to_owned(), ms: 10 };
        for (memory_only, moment, over) in
            [(true, rebooted.clone(), true), (true, now(2_000), false), (false, rebooted, false)]
        {
            assert_eq!(is_over(&Entry { memory_only, ..entry() }, &moment), over, "{memory_only} {moment:?}");
        }
    }

    #[test]
    fn one_that_changes_nothing_is_open_until_its_time() {
        let mut unchanged = Entry::unchanged(&Checkpoint::new("unchanged/1"), Some(9_000));
        unchanged.boot = "b1".to_owned();
        assert!(!is_settled(&unchanged, NM, &[]) && !is_over(&unchanged, &now(8_999)));
        assert!(is_over(&unchanged, &now(9_000)));
        let open = of_note(&unchanged, NM, &[], 8_000);
        assert_eq!((open.guard, open.is_ours_to_undo()), (Guard::RollsBackIn(Duration::from_secs(1)), false));
    }

    #[test]
    fn a_note_is_settled_when_its_network_manager_has_no_such_checkpoint_or_the_decision_was_made() {
        let committing = Entry { committing: true, ..entry() };
        for (entry, running, held, settled) in [
            (&entry(), NM, &[held()][..], false),
            (&entry(), NM, &[], true),
            (&entry(), NEXT_NM, &[], false),
            (&entry(), None, &[], false),
            (&committing, NEXT_NM, &[], true),
        ] {
            assert_eq!(is_settled(entry, running, held), settled, "{entry:?} {running:?}");
        }
        // The next NetworkManager gives the same names again, to others.
        assert!(!is_ours(&entry(), &held(), NEXT_NM));
    }
}
