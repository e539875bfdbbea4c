//! The environment variables of the original's deployments.
//!
//! | variable | meaning |
//! |---|---|
//! | `SQL_HOST`, `SQL_PORT`, `SQL_DB_NAME` | the database; by default `localhost`, 5432 and `postgres` |
//! | `SQL_USER`, `SQL_PASSWORD` | the user, by default `postgres`, and the password, by default none |
//! | `APP_RUN_PROJECTIONS` | `true` or `false`: runs the projections or not |

/// The settings from these variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The URL of the journal's database, with the password; `None` if no variable names it.
    pub journal: Option<String>,
    /// True if the projections run; `None` if the variable is not set.
    pub projections: Option<bool>,
}

/// The error for an invalid value of a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("APP_RUN_PROJECTIONS is {0:?}; it can be true or false")]
pub struct NeitherTrueNorFalse(String);

/// Reads the variables.
///
/// # Errors
///
/// [`NeitherTrueNorFalse`]: `APP_RUN_PROJECTIONS` has another value.
pub fn environment(variable: impl Fn(&str) -> Option<String>) -> Result<Environment, NeitherTrueNorFalse> {
    let said = |name: &str| variable(name).filter(|value| !value.is_empty());
    let parts = ["SQL_HOST", "SQL_PORT", "SQL_DB_NAME", "SQL_USER", "SQL_PASSWORD"].map(said);
    let journal = parts.iter().any(Option::is_some).then(|| {
        let [host, port, database, user, password] = parts;
        let or = |value: Option<String>, default: &str| escaped(value.as_deref().unwrap_or(default));
        let (host, port) = (or(host, "localhost"), or(port, "5432"));
        let (user, database) = (or(user, "postgres"), or(database, "postgres"));
        let password = password.map_or_else(String::new, |password| format!(":{}", escaped(&password)));
        // Like the original's driver, it prefers TLS.
        format!("postgres://{user}{password}@{host}:{port}/{database}?sslmode=prefer")
    });
    let projections = match said("APP_RUN_PROJECTIONS").as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(other) => return Err(NeitherTrueNorFalse(other.to_owned())),
    };
    Ok(Environment { journal, projections })
}

/// Escapes text for a URL. All but RFC 3986's unreserved characters become `%xx`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Environment, NeitherTrueNorFalse> {
        let find = |name: &str| variables.iter().find(|(found, _)| *found == name);
        environment(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_database_is_named_by_any_of_its_variables() {
        let journal = |variables: &[(&str, &str)]| of(variables).unwrap().journal;
        assert_eq!(journal(&[]), None);
        assert_eq!(journal(&[("SQL_HOST", "")]), None, "nothing is said");
        assert_eq!(
            journal(&[("SQL_HOST", "db")]).as_deref(),
            Some("postgres://postgres@db:5432/postgres?sslmode=prefer")
        );
        let all = [
            ("SQL_HOST", "10.0.0.7"),
            ("SQL_PORT", "6432"),
            ("SQL_DB_NAME", "my shows"),
            ("SQL_USER", "ann"),
            ("SQL_PASSWORD", "a:b@c/d"),
        ];
        assert_eq!(
            journal(&all).as_deref(),
            Some("postgres://ann:a%3Ab%40c%2Fd@10.0.0.7:6432/my%20shows?sslmode=prefer")
        );
    }

    #[test]
    fn projections_run_or_do_not_and_anything_else_is_refused() {
        let projections = |value| of(&[("APP_RUN_PROJECTIONS", value)]).map(|said| said.projections);
        assert_eq!(projections("true"), Ok(Some(true)));
        assert_eq!(projections("false"), Ok(Some(false)));
        assert_eq!(projections(""), Ok(None));
        let said = projections("yes").unwrap_err().to_string();
        assert_eq!(said, "APP_RUN_PROJECTIONS is \"yes\"; it can be true or false");
    }
}
