//! Repeated times in UTC: cron's five fields, or six with seconds first.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{Timestamp, tz::TimeZone};

/// The number of years to search. 29 February can be eight years away, since 2100 has none.
const YEARS: i16 = 8;

/// Returns an error if a text is no cron expression.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text, 1970)
        .map(drop)
        .map_err(|why| format!("{text:?} is not cron's five fields, or six with seconds first: {why}"))
}

/// Returns the first time after this one, both in milliseconds since 1970. `None` if there is none within eight years.
pub(crate) fn next_ms(text: &str, after_ms: i64) -> Option<i64> {
    let after = Timestamp::from_millisecond(after_ms).ok()?.to_zoned(TimeZone::UTC);
    let next = parse(text, after.year())
        .ok()?
        .find_next_occurrence(&after, false)
        .ok()?;
    Some(next.timestamp().as_millisecond())
}

/// Parses the fields and adds the years to search. Without years, the search for an impossible day like 31 February would go on to the year 5000.
fn parse(text: &str, year: i16) -> Result<Cron, String> {
    let fields = text.split_whitespace().count();
    let seconds = match fields {
        5 => "0 ",
        6 => "",
        _ => return Err(format!("it has {fields} fields")),
    };
    let text = format!("{seconds}{text} {year}-{}", year.saturating_add(YEARS)).replace('?', "*");
    CronParser::builder()
        .seconds(Seconds::Required)
        .year(Year::Required)
        .sloppy_ranges(true)
        .build()
        .parse(&text)
        .map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(cron: &str, after: &str) -> String {
        let after: Timestamp = after.parse().unwrap();
        assert_eq!(check(cron), Ok(()));
        next_ms(cron, after.as_millisecond()).map_or("never".into(), crate::time::text)
    }

    #[test]
    fn the_next_time_is_the_first_one_after() {
        for (cron, after, expected) in [
            ("* * * * *", "2026-11-23T05:10:42Z", "2026-11-23T05:11:00.000Z"),
            ("*/5 * * * * *", "2026-11-23T05:10:42.5Z", "2026-11-23T05:10:45.000Z"),
            ("*/5 * * * * *", "2026-11-23T05:10:45Z", "2026-11-23T05:10:50.000Z"),
            ("0 0 1 1 *", "2026-11-23T05:10:42Z", "2027-01-01T00:00:00.000Z"),
            ("30 9 * * mon-fri", "2026-11-20T10:00:00Z", "2026-11-23T09:30:00.000Z"),
            ("30 9 ? NOV MON", "2026-11-20T10:00:00Z", "2026-11-23T09:30:00.000Z"),
            ("0 0 29 feb *", "2026-11-23T05:10:42Z", "2028-02-29T00:00:00.000Z"),
            ("0 0 29 feb *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00.000Z"),
            ("0 12 13 * fri", "2026-11-21T00:00:00Z", "2026-11-27T12:00:00.000Z"),
            ("59 59 23 * * 7", "2026-11-22T23:59:59Z", "2026-11-29T23:59:59.000Z"),
            ("15,45 0-6/2 * * *", "2026-11-23T04:45:00Z", "2026-11-23T06:15:00.000Z"),
            ("5/20 * * * *", "2026-11-23T05:10:42Z", "2026-11-23T05:25:00.000Z"),
            ("5/1 * * * *", "2026-11-23T05:10:42Z", "2026-11-23T05:11:00.000Z"),
            ("0 0 31 2 *", "2026-11-23T00:00:00Z", "never"),
        ] {
            assert_eq!(next(cron, after), expected, "{cron}");
        }
    }

    #[test]
    fn a_text_that_is_no_cron_is_refused_with_the_text() {
        for wrong in [
            "* * * *",
            "* * * * * * *",
            "0 0 1 1 * 2026",
            "60 * * * *",
            "* 24 * * *",
            "* * * * 8",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "@daily",
            "",
        ] {
            let why = check(wrong).unwrap_err();
            assert!(why.contains(&format!("{wrong:?}")), "{why}");
            assert_eq!(next_ms(wrong, 0), None, "{wrong}");
        }
    }
}
