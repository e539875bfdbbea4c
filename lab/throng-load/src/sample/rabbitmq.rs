use serde_json::Value;

use super::Reading;

/// Reads the depth, the publish rate and the delivery rate of every queue from `/api/queues`.
pub(super) fn read(page: &[u8]) -> Result<Vec<Reading>, String> {
    let queues: Value =
        serde_json::from_slice(page).map_err(|error| format!("the broker's answer is no JSON: {error}"))?;
    let queues = queues.as_array().ok_or("the broker's answer is no list of queues")?;
    let mut readings = Vec::new();
    for queue in queues {
        let Some(name) = queue.get("name").and_then(Value::as_str) else {
            continue;
        };
        for (pointer, what, unit) in [
            ("/messages", "messages queued", "messages"),
            ("/message_stats/publish_details/rate", "published", "messages/s"),
            ("/message_stats/deliver_get_details/rate", "delivered", "messages/s"),
        ] {
            if let Some(value) = queue.pointer(pointer).and_then(Value::as_f64) {
                readings.push(Reading {
                    name: format!("{name}: {what}"),
                    unit,
                    value,
                    counter: false,
                });
            }
        }
    }
    Ok(readings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_its_depth_and_rates() {
        let page = br#"[{"name":"skiers","messages":42,"message_stats":{"publish_details":{"rate":10.5}}},{"name":"resorts","messages":0}]"#;
        let readings = read(page).unwrap();
        let names: Vec<&str> = readings.iter().map(|reading| reading.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "skiers: messages queued",
                "skiers: published",
                "resorts: messages queued"
            ]
        );
    }
}
