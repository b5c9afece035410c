//! How tokens become time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use phalanx::{Class, Nanos};
use serde::Deserialize;

use crate::error::{InputError, Place, excerpt};

/// The service time of a request alone on its GPUs, from its tokens: with `L` tokens in and `out` tokens out,
///
/// > prefill = a + b L + c L², decode = (out - 1) (d + e (L + out / 2)), in milliseconds
///
/// so that prefill gives the first token, and each later one reads a context that grows from `L` to `L + out`.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct ServiceModel {
    /// `a`: milliseconds a request.
    pub prefill_fixed_ms: f64,
    /// `b`: milliseconds a token in.
    pub prefill_per_token_ms: f64,
    /// `c`: milliseconds a token in, squared.
    #[serde(default)]
    pub prefill_per_token2_ms: f64,
    /// `d`: milliseconds a token out.
    pub decode_per_token_ms: f64,
    /// `e`: milliseconds a token out and token of context.
    #[serde(default)]
    pub decode_per_token_per_ctx_ms: f64,
}

impl ServiceModel {
    /// The prefill, in milliseconds.
    #[must_use]
    pub fn prefill_ms(&self, input: u32) -> f64 {
        let l = f64::from(input);
        self.prefill_fixed_ms + l * (self.prefill_per_token_ms + l * self.prefill_per_token2_ms)
    }

    /// The decode, in milliseconds; 0 for one token or none.
    #[must_use]
    pub fn decode_ms(&self, input: u32, output: u32) -> f64 {
        let (l, out) = (f64::from(input), f64::from(output));
        (out - 1.0).max(0.0) * (self.decode_per_token_ms + self.decode_per_token_per_ctx_ms * (l + out / 2.0))
    }

    /// Prefill and prefill plus decode, each at most [`MAX_SPAN`](crate::units::MAX_SPAN); `None` beyond it.
    #[must_use]
    pub fn times(&self, input: u32, output: u32) -> Option<(Nanos, Nanos)> {
        let prefill = self.prefill_ms(input);
        let service = prefill + self.decode_ms(input, output);
        let nanos = |ms: f64| Nanos((ms * 1e6).round() as u64);
        (service * 1e6 <= crate::units::MAX_SPAN.0 as f64).then(|| (nanos(prefill), nanos(service)))
    }

    fn coefficients(&self) -> [(&'static str, f64); 5] {
        [
            ("prefill_fixed_ms", self.prefill_fixed_ms),
            ("prefill_per_token_ms", self.prefill_per_token_ms),
            ("prefill_per_token2_ms", self.prefill_per_token2_ms),
            ("decode_per_token_ms", self.decode_per_token_ms),
            ("decode_per_token_per_ctx_ms", self.decode_per_token_per_ctx_ms),
        ]
    }
}

/// The service model of each class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServiceModels {
    /// Of a small request, on one GPU.
    pub small: ServiceModel,
    /// Of a large request, on all of them.
    pub large: ServiceModel,
}

impl Default for ServiceModels {
    /// Round numbers of our own choosing, of the order of an 8-billion-parameter model on one current data-centre GPU and of a
    /// 70-billion one over eight. They are no measurement: for results that should mean something, give your own.
    fn default() -> Self {
        Self {
            small: ServiceModel {
                prefill_fixed_ms: 5.0,
                prefill_per_token_ms: 0.02,
                prefill_per_token2_ms: 8e-7,
                decode_per_token_ms: 7.0,
                decode_per_token_per_ctx_ms: 5e-5,
            },
            large: ServiceModel {
                prefill_fixed_ms: 15.0,
                prefill_per_token_ms: 0.04,
                prefill_per_token2_ms: 5e-7,
                decode_per_token_ms: 15.0,
                decode_per_token_per_ctx_ms: 1.5e-5,
            },
        }
    }
}

impl ServiceModels {
    /// The model of a class.
    #[must_use]
    pub fn class(&self, class: Class) -> &ServiceModel {
        match class {
            Class::Small => &self.small,
            Class::Large => &self.large,
        }
    }

    /// Reads a JSON file: an object whose entries are service models by name; other entries are ignored.
    /// `small` and `large` say which entry is for which class; without them the entries `small` and `large` are.
    ///
    /// # Errors
    /// A file that cannot be read or is no JSON, an entry that is not there (those that are get listed), or a coefficient that is
    /// negative or huge.
    pub fn read(path: &Path, small: Option<&str>, large: Option<&str>) -> Result<Self, InputError> {
        let file: Arc<str> = path.display().to_string().into();
        let text = std::fs::read(path).map_err(|source| InputError::Open { file: Arc::clone(&file), source })?;
        Self::parse(&file, &text, small, large)
    }

    /// The same from bytes; `file` is for errors.
    ///
    /// # Errors
    /// As [`ServiceModels::read`].
    pub fn parse(file: &str, text: &[u8], small: Option<&str>, large: Option<&str>) -> Result<Self, InputError> {
        let file: Arc<str> = file.into();
        let entries: BTreeMap<String, serde_json::Value> = serde_json::from_slice(text).map_err(|e| {
            let text = e.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            let place = Place { file: &file, line: e.line().max(1) as u64 };
            place.line(format!("is no JSON object: {what}"), "write service models by name, in one object")
        })?;
        let model = |name: &str| entries.get(name).and_then(|entry| ServiceModel::deserialize(entry).ok());
        let pick = |class: Class, name: Option<&str>| {
            let name = name.unwrap_or(class.name());
            let place = Place { file: &file, line: 1 };
            let Some(model) = model(name) else {
                let known: Vec<String> =
                    entries.keys().filter(|name| model(name).is_some()).take(20).map(|k| excerpt(k.as_bytes())).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let what = format!("is no service model of this file, and is asked for as the one of {class} requests");
                return Err(place.field(&excerpt(name.as_bytes()), what, format!("choose one of: {known}")));
            };
            match model.coefficients().into_iter().find(|(_, value)| !(0.0..=1e9).contains(value)) {
                None => Ok(model),
                Some((field, value)) => {
                    let field = format!("{}.{field}", excerpt(name.as_bytes()));
                    Err(place.field(&field, format!("{value} is out of range"), "give a number from 0 to 1e9"))
                }
            }
        };
        Ok(Self { small: pick(Class::Small, small)?, large: pick(Class::Large, large)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"{"note": 3,
        "tiny": {"prefill_fixed_ms": 1, "prefill_per_token_ms": 0.5, "decode_per_token_ms": 2, "tp": 1},
        "big": {"prefill_fixed_ms": 10, "prefill_per_token_ms": 0.1, "prefill_per_token2_ms": 0.01,
                "decode_per_token_ms": 3, "decode_per_token_per_ctx_ms": 0.5},
        "bad": {"prefill_fixed_ms": -1, "prefill_per_token_ms": 0.5, "decode_per_token_ms": 2}}"#;

    #[test]
    fn the_formula() {
        let models = ServiceModels::parse("m.json", TWO.as_bytes(), Some("tiny"), Some("big")).unwrap();
        assert_eq!(models.small.times(10, 1), Some((Nanos::from_millis(6), Nanos::from_millis(6))));
        // 10 + 1 + 1; then 3 x (3 + .5 x 12).
        assert_eq!(models.large.times(10, 4), Some((Nanos::from_millis(12), Nanos::from_millis(39))));
        assert_eq!(models.large.times(100_000_000, 4), None);
        assert_eq!(models.small.times(0, 0), Some((Nanos::from_millis(1), Nanos::from_millis(1))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, small, says) in [
            (
                TWO,
                None,
                "field `small`: is no service model of this file, and is asked for as the one of small requests; choose one of: bad, big, tiny",
            ),
            (TWO, Some("bad"), "field `bad.prefill_fixed_ms`: -1 is out of range"),
            ("{\n3}", None, "line 2: is no JSON object"),
            ("{}", None, "choose one of: none"),
        ] {
            let error = ServiceModels::parse("m.json", text.as_bytes(), small, Some("big")).unwrap_err().to_string();
            assert!(error.starts_with("m.json: line ") && error.contains(says), "{error}");
        }
        assert!(ServiceModels::read(Path::new("nowhere.json"), None, None).unwrap_err().to_string().contains("cannot be opened"));
    }
}
