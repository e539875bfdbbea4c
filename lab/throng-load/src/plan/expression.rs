//! Formulas in plans: `floor(0.2 * runs * floor(skiers / floor(threads / 4)))`.

use std::collections::BTreeMap;

use crate::cli::values::known;

const DEPTH_MAX: usize = 64;

/// Returns the value of a formula with numbers, variables, `+ - * /`, parentheses, `floor`, `ceil`, `min` and `max`.
pub(crate) fn evaluate(text: &str, variables: &BTreeMap<String, f64>) -> Result<f64, String> {
    let mut reader = Reader {
        text,
        at: 0,
        variables,
        depth: 0,
    };
    let value = reader.sum()?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return Err(format!("in `{text}`: `{}` was not expected", &text[reader.at..]));
    }
    if !value.is_finite() {
        return Err(format!("`{text}` is no finite number (a division by zero?)"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    variables: &'a BTreeMap<String, f64>,
    depth: usize,
}

impl Reader<'_> {
    fn skip_blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, symbol: char) -> bool {
        self.skip_blanks();
        let found = self.text[self.at..].starts_with(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.take('+') {
                value += self.product()?;
            } else if self.take('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.factor()?;
        loop {
            if self.take('*') {
                value *= self.factor()?;
            } else if self.take('/') {
                value /= self.factor()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("`{}` is nested too deeply", self.text));
        }
        let value = if self.take('-') {
            -self.factor()?
        } else if self.take('(') {
            let value = self.sum()?;
            self.close()?;
            value
        } else {
            self.word()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn close(&mut self) -> Result<(), String> {
        if self.take(')') {
            Ok(())
        } else {
            Err(format!("in `{}`: a `)` is missing", self.text))
        }
    }

    fn word(&mut self) -> Result<f64, String> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let end = rest
            .find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '.')
            .unwrap_or(rest.len());
        let word = &rest[..end];
        self.at += end;
        if word.is_empty() {
            return Err(format!("in `{}`: a number or name is missing", self.text));
        }
        if let Ok(number) = word.parse::<f64>() {
            return Ok(number);
        }
        if self.take('(') {
            let first = self.sum()?;
            let value = match word {
                "floor" => (first + 1e-9).floor(), // 0.1 * 30 must be 3 in spite of rounding
                "ceil" => (first - 1e-9).ceil(),
                "min" | "max" => {
                    if !self.take(',') {
                        return Err(format!("in `{}`: `{word}` takes two values", self.text));
                    }
                    let second = self.sum()?;
                    if word == "min" {
                        first.min(second)
                    } else {
                        first.max(second)
                    }
                }
                _ => {
                    return Err(format!(
                        "in `{}`: no function `{word}`; there are floor, ceil, min, max",
                        self.text
                    ));
                }
            };
            self.close()?;
            return Ok(value);
        }
        self.variables.get(word).copied().ok_or_else(|| {
            format!(
                "in `{}`: no variable `{word}` in [variables]; {}",
                self.text,
                known(self.variables.keys().map(String::as_str))
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        evaluate(
            text,
            &BTreeMap::from([("threads".to_string(), 128.0), ("skiers".to_string(), 20_000.0)]),
        )
    }

    #[test]
    fn formulas_follow_the_usual_rules() {
        assert_eq!(value("1 + 2 * 3 - 4 / 2"), Ok(5.0));
        assert_eq!(value("-(1 + 2) * 3"), Ok(-9.0));
        assert_eq!(
            value("floor(0.2 * 10 * floor(skiers / floor(threads / 4)))"),
            Ok(1250.0)
        );
        assert_eq!(value("max(1, min(7, threads))"), Ok(7.0));
    }

    #[test]
    fn mistakes_are_named() {
        for text in [
            "1 +",
            "(1",
            "1 2",
            "users",
            "round(1)",
            "1 / 0",
            "",
            "min(1)",
            &"(".repeat(100),
        ] {
            assert!(value(text).is_err(), "{text}");
        }
        assert!(value("users").unwrap_err().contains("skiers, threads"));
    }
}
