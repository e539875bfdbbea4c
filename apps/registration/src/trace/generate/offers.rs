//! The offered sections, with their demand and seats.

use super::super::{OfferedSection, Shape, random::Random};

/// The departments of a fictitious university. Some codes contain spaces, like the published ones.
const DEPARTMENTS: [&str; 48] = [
    "A HTG", "ACC", "ANTHR", "ARAB", "ART", "ASTRO", "BIO", "BUS M", "C S", "CE EN", "CH EN", "CHEM", "CHIN", "COMMS",
    "DANCE", "EC EN", "ECON", "ENGL", "ENT", "FIN", "FREN", "GEOG", "GEOL", "GERM", "HIST", "HLTH", "I SYS", "JAPAN",
    "LING", "M COM", "MATH", "ME EN", "MKTG", "MUSIC", "NURS", "PHIL", "PHYS", "PL SC", "PSYCH", "PWS", "REL A",
    "RUSS", "SOC", "SPAN", "STAC", "STAT", "TMA", "WRTG",
];
const COURSE_NUMBERS: std::ops::Range<u32> = 100..700;

/// The flatness of the popularity. The demand for the section of rank r is proportional to 1 / (r + this).
const POPULARITY_OFFSET: u64 = 30;

/// The number of adds from which a section's seats depend on its demand.
const WANTED_ADDS: u32 = 12;

/// The offered sections, and the demand for them.
pub(super) struct Offers {
    /// The sections, in the order of their ids.
    pub(super) sections: Vec<OfferedSection>,
    /// The number of adds of each section, by its index in `sections`; 0 for a section without requests.
    pub(super) adds: Vec<u32>,
}

pub(super) fn draw(shape: &Shape, random: &mut Random) -> Offers {
    let ids = ids(shape.sections, random);
    let adds = adds(shape, random);
    let capacities = capacities(shape, &adds, random);
    let sections = ids
        .into_iter()
        .zip(capacities)
        .map(|(id, capacity)| OfferedSection {
            id: id.into(),
            capacity,
        })
        .collect();
    Offers { sections, adds }
}

/// Returns distinct ids such as `C S 142-1`, sorted. Courses are random, and each has one or more sections.
fn ids(count: u32, random: &mut Random) -> Vec<String> {
    let mut courses: Vec<(&str, u32, u32)> = DEPARTMENTS
        .iter()
        .flat_map(|department| COURSE_NUMBERS.map(|number| (*department, number, 0)))
        .collect();
    random.shuffle(&mut courses);
    let mut ids = Vec::with_capacity(count as usize);
    while ids.len() < count as usize {
        for (department, number, offered) in &mut courses {
            let more = if random.one_in(8) {
                random.between(4, 24)
            } else {
                random.between(1, 3)
            };
            let wanted = (count as usize - ids.len()).min(more as usize);
            for _ in 0..wanted {
                *offered += 1;
                ids.push(format!("{department} {number}-{offered}"));
            }
        }
    }
    ids.sort_unstable();
    ids
}

/// Distributes all adds over the touched sections by popularity. Each gets at least one.
fn adds(shape: &Shape, random: &mut Random) -> Vec<u32> {
    let mut by_rank: Vec<usize> = (0..shape.sections as usize).collect();
    random.shuffle(&mut by_rank);
    by_rank.truncate(shape.sections_touched as usize);

    let weights: Vec<u64> = (0..u64::from(shape.sections_touched))
        .map(|rank| (1 << 40) / (rank + POPULARITY_OFFSET))
        .collect();
    let weight_total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let to_deal = shape.adds - shape.sections_touched;
    let mut adds = vec![0; shape.sections as usize];
    let mut dealt = 0;
    for (section, weight) in by_rank.iter().zip(weights) {
        let share = u128::from(to_deal) * u128::from(weight) / weight_total;
        let share = u32::try_from(share).expect("a share is no larger than the whole");
        adds[*section] = 1 + share;
        dealt += share;
    }
    for section in by_rank.iter().cycle().take((to_deal - dealt) as usize) {
        adds[*section] += 1;
    }
    adds
}

/// Returns the seats. Wanted sections have a quarter to one and a half of their demand; others have the size of a room.
fn capacities(shape: &Shape, adds: &[u32], random: &mut Random) -> Vec<u32> {
    let mut capacities: Vec<u32> = adds
        .iter()
        .map(|adds| {
            let seats = if *adds >= WANTED_ADDS {
                u64::from(*adds) * u64::from(random.between(25, 150)) / 100
            } else if random.one_in(6) {
                u64::from(random.between(1, 8))
            } else {
                u64::from(random.between(10, 45))
            };
            let seats = u32::try_from(seats).unwrap_or(u32::MAX);
            seats.clamp(1.min(shape.capacity_max), shape.capacity_max)
        })
        .collect();
    let mut order: Vec<usize> = (0..capacities.len()).collect();
    random.shuffle(&mut order);
    let (closed, open) = order.split_at(shape.sections_closed as usize);
    for section in closed {
        capacities[*section] = 0;
    }
    if let Some(largest) = open.first() {
        capacities[*largest] = shape.capacity_max;
    }
    capacities
}
