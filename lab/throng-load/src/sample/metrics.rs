use super::Reading;

/// Returns the chosen values of a page: by pointer if it is JSON, by name if it is Prometheus text.
pub(super) fn read(page: &[u8], series: &[String]) -> Result<Vec<Reading>, String> {
    let gauge = |name: &str, value| Reading {
        name: name.to_string(),
        unit: "",
        value,
        counter: false,
    };
    if let Ok(json) = serde_json::from_slice::<serde_json::Value>(page) {
        let value = |pointer: &String| Some(gauge(pointer, json.pointer(pointer)?.as_f64()?));
        return Ok(series.iter().filter_map(value).collect());
    }
    let text = String::from_utf8_lossy(page);
    let readings = text.lines().filter_map(line).filter(|(name, _)| chosen(name, series));
    Ok(readings
        .map(|(name, value)| {
            let bare = name.split('{').next().unwrap_or(name);
            let counter = ["_total", "_count", "_sum", "_bucket"]
                .iter()
                .any(|suffix| bare.ends_with(suffix));
            Reading {
                name: name.to_string(),
                unit: if counter { "a second" } else { "" },
                value,
                counter,
            }
        })
        .collect())
}

/// Returns a line's name with labels, and its value. A timestamp after it is skipped.
fn line(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let name_end = match line.find('{') {
        Some(_) => line.rfind('}')? + 1,
        None => line.find(char::is_whitespace)?,
    };
    let value = line[name_end..].split_whitespace().next()?;
    Some((&line[..name_end], value.parse().ok()?))
}

fn chosen(name: &str, series: &[String]) -> bool {
    series.iter().any(|wanted| is_chosen(name, wanted))
}

/// Returns true if a name is chosen: as a whole, with or without its labels, or by a prefix that ends with `*`. A prefix does not choose the buckets
/// of histograms, which are many and tell little one by one.
pub(super) fn is_chosen(name: &str, wanted: &str) -> bool {
    let bare = name.split('{').next().unwrap_or(name);
    match wanted.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix) && !bare.ends_with("_bucket"),
        None => wanted == bare || wanted == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_series_are_chosen_by_name_and_prefix() {
        let page =
            b"# HELP a b\na_total{x=\"} 1\"} 5 1700000\nb 2.5\nbatch_size 7\nbatch_bucket{le=\"1\"} 3\nother 1\n";
        let readings = read(page, &["a_total".into(), "b".into(), "batch*".into()]).unwrap();
        let found: Vec<(String, f64, bool)> = readings
            .into_iter()
            .map(|one| (one.name, one.value, one.counter))
            .collect();
        let expected = [
            ("a_total{x=\"} 1\"}", 5.0, true),
            ("b", 2.5, false),
            ("batch_size", 7.0, false),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value, counter)| (name.to_string(), value, counter))
        );
    }

    #[test]
    fn json_values_are_chosen_by_pointer() {
        let readings = read(
            br#"{"queue_totals":{"messages":12}}"#,
            &["/queue_totals/messages".into(), "/none".into()],
        )
        .unwrap();
        assert_eq!(readings.len(), 1);
        assert_eq!(readings[0].value, 12.0);
    }
}
