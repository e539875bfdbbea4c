//! Random texts of a grammar.

use std::collections::HashMap;

const GRAMMAR: &str = include_str!("grammar.txt");
/// The depth beyond which the first alternative is taken.
const DEPTH_MAX: u32 = 9;

/// Makes texts of a grammar. The same seed makes the same texts.
pub(crate) struct Generator {
    random: fastrand::Rng,
    alternatives: HashMap<&'static str, Vec<String>>,
    /// The number of rules named so far.
    rules: usize,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        let mut texts: Vec<(&str, String)> = Vec::new();
        for line in GRAMMAR.lines().filter(|line| !line.starts_with('#')) {
            match (line.split_once(" = "), texts.last_mut()) {
                // An indented line continues the line before it.
                (_, Some((_, text))) if line.starts_with(' ') => *text += &format!(" {}", line.trim()),
                (Some((name, text)), _) => texts.push((name, text.to_owned())),
                _ => {}
            }
        }
        let alternatives = texts
            .into_iter()
            .map(|(name, text)| (name, text.split(" ~ ").map(str::to_owned).collect()));
        Generator {
            random: fastrand::Rng::with_seed(seed),
            alternatives: alternatives.collect(),
            rules: 0,
        }
    }

    /// Returns a random text for a rule of the grammar.
    pub(crate) fn text(&mut self, name: &str) -> String {
        self.expanded(name, 0)
    }

    fn expanded(&mut self, name: &str, depth: u32) -> String {
        let alternatives = self.alternatives.get(name).map_or(&[][..], Vec::as_slice);
        let place = if depth > DEPTH_MAX {
            0
        } else {
            self.random.usize(..alternatives.len().max(1))
        };
        let chosen = alternatives.get(place).cloned().unwrap_or_default();
        let mut parts = chosen.split('$');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part
                .find(|character: char| !character.is_ascii_lowercase())
                .unwrap_or(part.len());
            text += &self.expanded(&part[..end], depth + 1);
            text += &part[end..];
        }
        if name == "rule" {
            self.rules += 1;
            text = text.replace("RULE", &format!("r{}", self.rules));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_rulesets_compile() {
        let mut generator = Generator::new(1);
        for _ in 0..200 {
            let function = format!(
                "ruleset RID {{ global {{ f = function() {{ {} }} }} }}",
                generator.text("expression")
            );
            for source in [function, generator.text("select"), generator.text("sequence")] {
                let source = source.replace("DOMAIN", "d").replace("RID", "r");
                let ruleset = throng_krl::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"));
                throng_krl::compile(&ruleset).unwrap_or_else(|error| panic!("{error}\n{source}"));
            }
        }
    }

    #[test]
    fn same_seed_makes_the_same_texts() {
        let made = || Generator::new(7).text("sequence");
        assert!(made() == made() && made().contains("rule r1"), "{}", made());
    }
}
