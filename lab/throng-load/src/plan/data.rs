//! Values for templates: sequences, ranges, Zipf and shuffled lists, CSV, and groups of aggregates.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::expression::evaluate;
use super::groups::Groups;
use super::model::{Amount, Data, Per, Pick, Share, Walk};

/// The most values of a list in memory (shuffled, Zipf, CSV).
const HELD_MAX: u64 = 10_000_000;

/// A source of values, shared by all workers.
#[derive(Debug)]
pub(crate) struct DataSource {
    pub(crate) name: String,
    pub(crate) per: Per,
    /// The names of its fields: one empty name, except for CSV and grouped data.
    pub(crate) fields: Vec<String>,
    values: Values,
    count: u64,
    picker: Picker,
    share: Share,
    walk: Walk,
    /// The earlier source from whose value this one must differ.
    pub(crate) unlike: Option<usize>,
    cursor: AtomicU64,
}

#[derive(Debug)]
enum Values {
    Range {
        from: i64,
    },
    List(Vec<String>),
    Rows(Vec<Vec<String>>),
    /// A UUID that depends only on the number.
    Uuid {
        seed: u64,
    },
    /// A new UUID every time.
    FreshUuid,
    Text {
        length: usize,
    },
    Grouped(Box<Groups>),
}

#[derive(Debug)]
enum Picker {
    Random,
    Sequence,
    Shuffled(Vec<u32>),
    /// The cumulative weights, ending with 1.
    Zipf(Vec<f64>),
}

/// The user that draws, and the number of users.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawer {
    pub(crate) user: u64,
    pub(crate) users: u64,
}

impl Amount {
    pub(crate) fn value(&self, variables: &BTreeMap<String, f64>) -> Result<f64, String> {
        match self {
            Amount::Number(number) if !number.is_finite() => Err(format!("{number} is no number to count with")),
            Amount::Number(number) => Ok(*number),
            Amount::Formula(text) => evaluate(text, variables),
        }
    }

    pub(crate) fn whole(&self, variables: &BTreeMap<String, f64>) -> Result<u64, String> {
        let value = self.value(variables)?;
        if !(0.0..1e15).contains(&value) {
            return Err(format!("{value} is no count: it must be 0 or more"));
        }
        Ok((value + 1e-9).floor() as u64)
    }
}

impl DataSource {
    /// Builds the source called `name`. A grouped one may refer to the sources in `earlier`.
    pub(crate) fn new(
        name: &str,
        data: &Data,
        variables: &BTreeMap<String, f64>,
        directory: Option<&Path>,
        seed: u64,
        earlier: &[DataSource],
    ) -> Result<Self, String> {
        let mut fields = vec![String::new()];
        let mut kinds = 0;
        let mut built = None;
        if let Some([from, to]) = &data.range {
            kinds += 1;
            let (from, to) = (from.value(variables)? as i64, to.value(variables)? as i64);
            if to < from {
                return Err(format!("the range from {from} to {to} is empty"));
            }
            built = Some((Values::Range { from }, to.abs_diff(from) + 1));
        }
        if let Some(list) = &data.list {
            kinds += 1;
            let list: Vec<String> = list.iter().map(plain).collect();
            let count = list.len() as u64;
            built = Some((Values::List(list), count));
        }
        if let Some(file) = &data.csv {
            kinds += 1;
            let path = directory.map_or_else(|| file.into(), |directory| directory.join(file));
            let text = match (directory, super::shipped::data(file)) {
                (None, Some(text)) => text.to_string(),
                _ => std::fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            };
            let mut rows = super::csv::parse(&text);
            if rows.is_empty() {
                return Err(format!(
                    "{} is empty: its first line must name the columns",
                    path.display()
                ));
            }
            fields = rows.remove(0);
            if let Some((line, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != fields.len()) {
                let (found, wanted) = (row.len(), fields.len());
                return Err(format!(
                    "row {} of {} has {found} fields, its header {wanted}",
                    line + 1,
                    path.display()
                ));
            }
            let count = rows.len() as u64;
            built = Some((Values::Rows(rows), count));
        }
        if let Some(amount) = &data.uuid {
            kinds += 1;
            built = Some(match amount.whole(variables)? {
                0 => (Values::FreshUuid, 1),
                count => (
                    Values::Uuid {
                        seed: text_seed(name) ^ seed,
                    },
                    count,
                ),
            });
        }
        if let Some(length) = &data.text {
            kinds += 1;
            built = Some((
                Values::Text {
                    length: length.whole(variables)?.min(1024 * 1024) as usize,
                },
                1,
            ));
        }
        if let Some(grouped) = &data.grouped {
            kinds += 1;
            let place = earlier
                .iter()
                .position(|other| other.name == grouped.aggregates && other.fields.len() == 1);
            let aggregates =
                place.ok_or_else(|| format!("`aggregates` names no simple data `{}`", grouped.aggregates))?;
            let [from, to] = [
                grouped.members[0].value(variables)? as i64,
                grouped.members[1].value(variables)? as i64,
            ];
            if to < from {
                return Err(format!("members from {from} to {to} are none"));
            }
            let actions = if grouped.actions.is_empty() {
                vec![String::new()]
            } else {
                grouped.actions.clone()
            };
            let groups = Groups {
                aggregates,
                aggregate_count: earlier[aggregates].count,
                first_member: from,
                members: to.abs_diff(from) + 1,
                group: grouped.group.whole(variables)?.clamp(1, earlier[aggregates].count),
                order: grouped.order,
                seed,
                actions,
                current: Mutex::new(None),
            };
            if groups.group.saturating_mul(groups.members) > HELD_MAX {
                return Err(format!("a group has more than {HELD_MAX} members"));
            }
            fields = ["aggregate", "member", "action"].map(String::from).to_vec();
            let count = groups.aggregate_count * groups.members * groups.actions.len() as u64;
            built = Some((Values::Grouped(Box::new(groups)), count));
        }
        let (values, count) = match (kinds, built) {
            (1, Some(built)) => built,
            _ => return Err("give exactly one of range, list, csv, uuid, text, grouped".into()),
        };
        if count == 0 {
            return Err("it has no values".into());
        }
        let exponent = match &data.exponent {
            Some(exponent) => exponent.value(variables)?,
            None => 1.0,
        };
        let picker = Picker::new(data.pick, exponent, count, text_seed(name) ^ seed)?;
        let (share, walk) = (data.share, data.walk);
        let position = |other: &String| {
            let place = earlier.iter().position(|source| source.name == *other);
            place.ok_or_else(|| format!("`unlike` names no data before it in the alphabet: `{other}`"))
        };
        let unlike = data.unlike.as_ref().map(position).transpose()?;
        Ok(DataSource {
            name: name.into(),
            per: data.per,
            fields,
            values,
            count,
            picker,
            share,
            walk,
            unlike,
            cursor: AtomicU64::new(0),
        })
    }

    /// Draws a value and writes it into `slots`, one for each field. `own` is the user's position in the source.
    pub(crate) fn draw(
        &self,
        all: &[DataSource],
        drawer: Drawer,
        own: &mut u64,
        random: &mut SmallRng,
        slots: &mut [String],
    ) {
        let (begin, count) = match self.share {
            Share::All => (0, self.count),
            Share::Disjoint => {
                let part = (self.count / drawer.users.max(1)).max(1);
                (drawer.user % drawer.users.max(1) * part % self.count, part)
            }
        };
        let place = match &self.picker {
            Picker::Random => random.random_range(0..count),
            Picker::Zipf(weights) => {
                let weight: f64 = random.random();
                (weights.partition_point(|&cumulative| cumulative < weight) as u64).min(count - 1)
            }
            Picker::Sequence | Picker::Shuffled(_) => {
                let step = match (self.walk, self.share) {
                    (Walk::Shared, Share::All) => self.cursor.fetch_add(1, Ordering::Relaxed),
                    _ => {
                        *own += 1;
                        *own - 1
                    }
                };
                step % count
            }
        };
        let mut index = (begin + place) % self.count;
        if let Picker::Shuffled(order) = &self.picker {
            index = u64::from(order[index as usize]);
        }
        self.write(all, index, random, slots);
    }

    fn write(&self, all: &[DataSource], index: u64, random: &mut SmallRng, slots: &mut [String]) {
        use std::fmt::Write as _;
        if let Values::Rows(rows) = &self.values {
            for (slot, field) in slots.iter_mut().zip(&rows[index as usize]) {
                slot.clone_from(field);
            }
            return;
        }
        for slot in slots.iter_mut() {
            slot.clear();
        }
        match &self.values {
            Values::Range { from } => {
                let _ = write!(slots[0], "{}", from + index as i64);
            }
            Values::List(list) => slots[0].push_str(&list[index as usize]),
            Values::Rows(_) => {}
            Values::Uuid { seed } => uuid(&mut slots[0], &mut SmallRng::seed_from_u64(seed.wrapping_add(index))),
            Values::FreshUuid => uuid(&mut slots[0], random),
            Values::Text { length } => {
                const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
                slots[0].extend((0..*length).map(|_| LETTERS[random.random_range(0..LETTERS.len())] as char));
            }
            Values::Grouped(groups) => {
                let (aggregate, member, action) = groups.at(index);
                all[groups.aggregates].write(all, aggregate, random, &mut slots[..1]);
                let _ = write!(slots[1], "{}", groups.first_member + member as i64);
                slots[2].push_str(&groups.actions[action]);
            }
        }
    }
}

impl Picker {
    fn new(pick: Pick, exponent: f64, count: u64, seed: u64) -> Result<Self, String> {
        if matches!(pick, Pick::Shuffled | Pick::Zipf) && count > HELD_MAX {
            return Err(format!(
                "{count} values cannot be shuffled or drawn by Zipf: at most {HELD_MAX}"
            ));
        }
        Ok(match pick {
            Pick::Random => Picker::Random,
            Pick::Sequence => Picker::Sequence,
            Pick::Shuffled => {
                let mut order: Vec<u32> = (0..count as u32).collect();
                order.shuffle(&mut SmallRng::seed_from_u64(seed));
                Picker::Shuffled(order)
            }
            Pick::Zipf => {
                let mut sum = 0.0;
                let mut weights: Vec<f64> = (1..=count)
                    .map(|rank| {
                        sum += (rank as f64).powf(-exponent);
                        sum
                    })
                    .collect();
                weights.iter_mut().for_each(|weight| *weight /= sum);
                Picker::Zipf(weights)
            }
        })
    }
}

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn text_seed(text: &str) -> u64 {
    // FNV-1a, which only makes different names draw differently.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Writes a random (version 4) UUID.
fn uuid(text: &mut String, random: &mut SmallRng) {
    use std::fmt::Write as _;
    let (high, low): (u64, u64) = (random.random(), random.random());
    let _ = write!(
        text,
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(toml: &str, earlier: &[DataSource]) -> Result<DataSource, String> {
        let data: Data = toml::from_str(toml).map_err(|error| error.to_string())?;
        DataSource::new("x", &data, &BTreeMap::new(), None, 5, earlier)
    }

    fn drawn(source: &DataSource, all: &[DataSource], times: usize, user: u64, users: u64) -> Vec<String> {
        let mut random = SmallRng::seed_from_u64(1);
        let mut own = 0;
        let mut slots = vec![String::new(); source.fields.len()];
        (0..times)
            .map(|_| {
                source.draw(all, Drawer { user, users }, &mut own, &mut random, &mut slots);
                slots.join(" ")
            })
            .collect()
    }

    #[test]
    fn a_sequence_goes_round() {
        let range = source("range = [3, 5]", &[]).unwrap();
        assert_eq!(drawn(&range, &[], 4, 0, 1), ["3", "4", "5", "3"]);
    }

    #[test]
    fn a_shuffled_list_has_each_value_once_for_every_user() {
        let list = source("list = ['a', 'b', 3]\npick = 'shuffled'\nwalk = 'user'", &[]).unwrap();
        let first = drawn(&list, &[], 3, 0, 2);
        assert_eq!(first, drawn(&list, &[], 3, 1, 2));
        let mut sorted = first;
        sorted.sort();
        assert_eq!(sorted, ["3", "a", "b"]);
    }

    #[test]
    fn disjoint_users_never_meet() {
        let range = source("range = [1, 100]\npick = 'random'\nshare = 'disjoint'", &[]).unwrap();
        for user in 0..4 {
            for value in drawn(&range, &[], 200, user, 4) {
                let value: u64 = value.parse().unwrap();
                assert!((user * 25 + 1..=user * 25 + 25).contains(&value), "{user} {value}");
            }
        }
    }

    #[test]
    fn zipf_prefers_the_first() {
        let zipf = source("range = [1, 1000]\npick = 'zipf'\nexponent = 1.0", &[]).unwrap();
        let values = drawn(&zipf, &[], 10_000, 0, 1);
        let ones = values.iter().filter(|value| *value == "1").count();
        assert!((1100..1600).contains(&ones), "1 / H(1000) is 13.4 %: {ones}");
    }

    #[test]
    fn a_group_has_all_pairs_of_an_action_before_the_next_action() {
        let aggregates = vec![source("range = [10, 14]", &[]).unwrap()];
        let text = "[grouped]\naggregates = 'x'\nmembers = [0, 2]\nactions = ['R', 'C']\ngroup = 2";
        let grouped = source(text, &aggregates).unwrap();
        let all = drawn(&grouped, &aggregates, 30, 0, 1);
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), 30, "5 aggregates x 3 members x 2 actions");
        assert!(
            all[..6]
                .iter()
                .all(|one| (one.starts_with("10") || one.starts_with("11")) && one.ends_with('R'))
        );
        assert!(
            all[6..12]
                .iter()
                .all(|one| (one.starts_with("10") || one.starts_with("11")) && one.ends_with('C'))
        );
        assert!(
            all[24..].iter().all(|one| one.starts_with("14")),
            "the last group is smaller"
        );
        let serial = source(&format!("{text}\norder = 'serial'"), &aggregates).unwrap();
        assert_eq!(
            drawn(&serial, &aggregates, 4, 0, 1),
            ["10 0 R", "10 1 R", "10 2 R", "11 0 R"]
        );
    }

    #[test]
    fn ids_of_a_number_are_always_the_same_and_well_formed() {
        let ids = source("uuid = 100", &[]).unwrap();
        let first = drawn(&ids, &[], 100, 0, 1);
        assert_eq!(first, drawn(&ids, &[], 100, 0, 1), "a sequence goes round");
        assert_eq!(first[0].len(), 36);
        assert_eq!(&first[0][14..15], "4");
    }

    #[test]
    fn invalid_sources_are_refused() {
        for text in [
            "range = [2, 1]",
            "list = []",
            "pick = 'random'",
            "text = 3\nuuid = 1",
            "csv = 'a'",
            "range = [1, 2]\nunlike = 'y'",
        ] {
            assert!(source(text, &[]).is_err(), "{text}");
        }
    }
}
