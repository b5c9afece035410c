//! The settings of a policy as text: `name:key=value:key=value`.

use super::{POLICIES, PolicyInfo};
use std::fmt;

/// Why a policy cannot be made from its text. One line: what is wrong, and what there is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PolicyError {
    message: String,
}

impl PolicyError {
    /// Says what is wrong, in one line.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    pub(super) fn unknown(name: &str) -> Self {
        let known: Vec<_> = POLICIES.iter().map(|info| info.name).collect();
        Self::new(format!("no policy is named '{name}'; there are: {}", known.join(", ")))
    }
}

/// Key and value pairs, each key known to the policy and given once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    policy: &'static str,
    given: Vec<(&'static str, String)>,
}

impl Settings {
    pub(super) fn parse<'a>(info: &PolicyInfo, parts: impl Iterator<Item = &'a str>) -> Result<Self, PolicyError> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                PolicyError::new(format!("policy {}: '{part}' is not of the form key=value; {}", info.name, known(info)))
            })?;
            let Some(&(key, ..)) = info.settings.iter().find(|(known, ..)| *known == key) else {
                return Err(PolicyError::new(format!("policy {} has no setting '{key}'; {}", info.name, known(info))));
            };
            if given.iter().any(|(seen, _)| *seen == key) {
                return Err(PolicyError::new(format!("policy {}: '{key}' is given twice", info.name)));
            }
            given.push((key, value.to_owned()));
        }
        Ok(Self { policy: info.name, given })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.given.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// The value that one of these words stands for; the first is the default.
    ///
    /// # Errors
    /// If the value is none of the words.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, PolicyError> {
        let Some(text) = self.text(key) else { return Ok(choices[0].1) };
        choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            PolicyError::new(format!("policy {}: {key}={text}: it is one of {}", self.policy, words.join(", ")))
        })
    }
}

fn known(info: &PolicyInfo) -> String {
    if info.settings.is_empty() {
        return "it has no settings".to_owned();
    }
    let all: Vec<_> = info.settings.iter().map(|(key, default, _)| format!("{key}={default}")).collect();
    format!("its settings and their defaults: {}", all.join(", "))
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.given.iter().try_for_each(|(key, value)| write!(f, ":{key}={value}"))
    }
}
