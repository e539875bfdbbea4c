//! Access keys, from the usual environment variables.

use std::{fmt, fs, path::PathBuf};

/// An access key with its secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// Present if the key expires after some hours.
    pub(crate) session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.access_key)
    }
}

impl Credentials {
    /// Reads the variables. If they name no key, reads the file of shared credentials. The file is read again once its key has expired, so another
    /// program can renew it.
    ///
    /// # Errors
    /// The variables to set.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        if let (Some(access_key), Some(secret_key)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"))
        {
            let session_token = variable("AWS_SESSION_TOKEN");
            return Ok(Self {
                access_key,
                secret_key,
                session_token,
            });
        }
        let path = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let path = path.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".aws/credentials")));
        let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".into());
        let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| Self::of_profile(&text, &profile)).ok_or_else(|| {
            let file = path.map_or_else(String::new, |path| {
                format!(", and {} has none for the profile {profile:?}", path.display())
            });
            format!("there is no access key: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set{file}")
        })
    }

    fn of_profile(text: &str, profile: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim);
        let of_it = lines
            .skip_while(|line| line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) != Some(profile))
            .skip(1);
        let pairs: Vec<(&str, &str)> = of_it
            .take_while(|line| !line.starts_with('['))
            .filter_map(|line| line.split_once('='))
            .collect();
        let value = |name: &str| {
            let mut named = pairs.iter().filter(|(key, _)| key.trim() == name);
            named.next().map(|(_, value)| value.trim().to_owned())
        };
        Some(Self {
            access_key: value("aws_access_key_id")?,
            secret_key: value("aws_secret_access_key")?,
            session_token: value("aws_session_token"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn variables_come_before_the_file_of_the_profile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        fs::write(&path, "[default]\naws_access_key_id = a\naws_secret_access_key=b=\n\n[box]\naws_access_key_id=c\naws_secret_access_key=d\naws_session_token=e\n").unwrap();
        let read = |pairs: &[(&str, &str)]| {
            Credentials::read(|name| {
                let pair = pairs.iter().find(|(key, _)| *key == name);
                pair.map(|(_, value)| (*value).to_owned())
            })
        };
        let file = ("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap());
        assert_eq!(read(&[file]).unwrap().secret_key, "b=");
        let boxed = read(&[file, ("AWS_PROFILE", "box")]).unwrap();
        assert_eq!((&*boxed.access_key, boxed.session_token.as_deref()), ("c", Some("e")));
        assert_eq!(format!("{boxed:?}"), "Credentials(c)", "without the secret");
        let named = [file, ("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
        assert_eq!(read(&named).unwrap().access_key, "k");
        let none = read(&[file, ("AWS_PROFILE", "other")]).unwrap_err();
        assert!(
            none.contains("AWS_SECRET_ACCESS_KEY") && none.contains("other"),
            "{none}"
        );
    }
}
