//! Alarms: kept in the file, so that they survive a restart.

use std::collections::BTreeSet;

use quantykube_etcd_api::{AlarmMember, AlarmType};

/// The note in the file that holds them.
pub const NOTE: &str = "alarms";

/// The raised alarms: (member, type).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Alarms(BTreeSet<(i32, u64)>);

impl Alarms {
    /// Reads the note: 12 bytes each, type (i32 LE) and member (u64 LE).
    pub fn decode(note: &[u8]) -> Alarms {
        let mut alarms = BTreeSet::new();
        for entry in note.chunks_exact(12) {
            let (kind, member) = entry.split_at(4);
            let kind = i32::from_le_bytes(kind.try_into().expect("4 bytes"));
            alarms.insert((kind, u64::from_le_bytes(member.try_into().expect("8 bytes"))));
        }
        Alarms(alarms)
    }

    /// Writes the note.
    pub fn encode(&self) -> Vec<u8> {
        let mut note = Vec::with_capacity(12 * self.0.len());
        for (kind, member) in &self.0 {
            note.extend_from_slice(&kind.to_le_bytes());
            note.extend_from_slice(&member.to_le_bytes());
        }
        note
    }

    /// Raises one; false if it was raised already.
    pub fn raise(&mut self, member: u64, kind: AlarmType) -> bool {
        self.0.insert((kind as i32, member))
    }

    /// Takes one back; false if it was not raised.
    pub fn disarm(&mut self, member: u64, kind: AlarmType) -> bool {
        self.0.remove(&(kind as i32, member))
    }

    /// Whether an alarm of a type is raised, whoever's.
    pub fn has(&self, kind: AlarmType) -> bool {
        self.0
            .range((kind as i32, 0)..=(kind as i32, u64::MAX))
            .next()
            .is_some()
    }

    /// The alarms of a type, of all types for `None`.
    pub fn list(&self, kind: AlarmType) -> Vec<AlarmMember> {
        let wanted = |found: i32| kind == AlarmType::None || found == kind as i32;
        let mut alarms = Vec::new();
        for (kind, member) in self.0.iter().filter(|(kind, _)| wanted(*kind)) {
            alarms.push(AlarmMember {
                member_id: *member,
                alarm: *kind,
            });
        }
        alarms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_survive_their_note() {
        let mut alarms = Alarms::default();
        assert!(alarms.raise(7, AlarmType::NoSpace));
        assert!(!alarms.raise(7, AlarmType::NoSpace));
        assert!(alarms.raise(u64::MAX, AlarmType::Corrupt));
        let mut read = Alarms::decode(&alarms.encode());
        assert_eq!(read, alarms);
        assert!(read.has(AlarmType::Corrupt) && read.has(AlarmType::NoSpace));
        assert_eq!(read.list(AlarmType::None).len(), 2);
        assert_eq!(read.list(AlarmType::NoSpace)[0].member_id, 7);
        assert!(read.disarm(7, AlarmType::NoSpace));
        assert!(!read.disarm(7, AlarmType::NoSpace));
        assert!(!read.has(AlarmType::NoSpace));
    }
}
