//! Roles of administration, and the tokens, names and claims that give them.

use super::{Watched, tokens::Tokens};
use crate::caller::{Caller, Role};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The configured roles. Without any, programs of this machine are owners.
#[derive(Default)]
pub(crate) struct Roles {
    /// The token of an owner.
    pub(crate) token: Option<String>,
    /// Tokens for administration alone, each with a role.
    pub(crate) tokens: Option<Arc<Watched<Tokens>>>,
    /// Callers of the service, by their names.
    pub(crate) callers: Vec<(String, Role)>,
    /// The claim of JSON web tokens that names a role, or several; a dot leads into an object.
    pub(crate) claim: Option<String>,
}

impl Roles {
    /// True if no role is configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.token.is_none() && self.tokens.is_none() && !self.may_be_of_callers()
    }

    /// Callers of the service may have roles.
    pub(crate) fn may_be_of_callers(&self) -> bool {
        !self.callers.is_empty() || self.claim.is_some()
    }

    /// Returns the holder and the role of a token for administration, at a time in seconds since 1970.
    pub(crate) fn of_token(&self, given: &str, now: i64) -> Option<(String, Role)> {
        if self.token.as_ref().is_some_and(|token| is_same(given, token)) {
            return Some(("token".to_owned(), Role::Owner));
        }
        let tokens = self.tokens.as_ref()?.get();
        tokens.administrator(given.as_bytes(), now)
    }

    /// Returns the greatest role of a caller.
    pub(crate) fn of_caller(&self, caller: &Caller) -> Option<Role> {
        let named = self.callers.iter().filter(|(name, _)| name == caller.name());
        let named = named.map(|(_, role)| *role).max();
        let claimed = self.claim.as_ref().and_then(|claim| claimed(caller.claims(), claim));
        named.max(claimed)
    }
}

/// Returns the greatest role in a claim. Other words in it are ignored.
fn claimed(claims: &Map<String, Value>, path: &str) -> Option<Role> {
    // A name with dots (https://example/role) takes precedence over a path through objects.
    let value = claims.get(path).or_else(|| {
        let mut names = path.split('.');
        let first = claims.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    })?;
    let words: &[Value] = match value {
        Value::Array(words) => words,
        word => std::slice::from_ref(word),
    };
    words.iter().filter_map(|word| word.as_str()?.parse().ok()).max()
}

/// Takes as long wherever they differ.
fn is_same(given: &str, token: &str) -> bool {
    let differs = given
        .bytes()
        .zip(token.bytes())
        .fold(0, |differs, (one, other)| differs | (one ^ other));
    given.len() == token.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_is_the_same_or_not() {
        assert!(is_same("secret", "secret"));
        for wrong in ["", "secre", "secrets", "Secret", "secreT"] {
            assert!(!is_same(wrong, "secret"), "{wrong}");
        }
    }

    #[test]
    fn greatest_role_of_a_claim_counts() {
        let claims = json!({
            "role": "viewer", "roles": ["staff", "operator", "metrics", 7], "realm": { "roles": ["owner"] },
            "https://example.org/role": "metrics", "empty": [], "other": "admin",
        });
        let claims = claims.as_object().unwrap();
        for (path, role) in [
            ("role", Some(Role::Viewer)),
            ("roles", Some(Role::Operator)),
            ("realm.roles", Some(Role::Owner)),
            ("https://example.org/role", Some(Role::Metrics)),
            ("empty", None),
            ("other", None),
            ("realm", None),
            ("nothing.roles", None),
        ] {
            assert_eq!(claimed(claims, path), role, "{path}");
        }
    }
}
