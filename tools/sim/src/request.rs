//! One request as a trace or a workload gives it, and the face of everything that gives requests.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use phalanx::{Class, Nanos};

use crate::InputError;

/// A request as a trace or a workload gives it: plain numbers, `Copy`, no text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// Its place among the requests of its source, from 0, without gaps.
    pub number: u64,
    /// When it arrives; the first of a trace at 0, never earlier than the one before.
    pub arrival: Nanos,
    /// Which class it is of.
    pub class: Class,
    /// For how long all its lanes are held; at least 1 ns.
    pub service: Nanos,
    /// The prediction of `service` that comes with the request.
    pub expected: Option<Nanos>,
    /// Hard: so long after its arrival a request that has not started is expired.
    pub deadline: Option<Nanos>,
    /// Soft: so long after its arrival it should have ended.
    pub target: Option<Nanos>,
    /// Who asks: a key of [`Source::tenants`].
    pub tenant: u32,
    /// For which model: a key of [`Source::models`].
    pub model: u32,
    /// The part of `service` until the first token.
    pub prefill: Option<Nanos>,
    /// Tokens in.
    pub input_tokens: Option<u32>,
    /// Tokens out.
    pub output_tokens: Option<u32>,
    /// It can stop at multiples of this span of its running time; `None`: it runs to its end.
    pub step: Option<Nanos>,
}

/// A table of names: a request carries a `u32` key instead of a text, so that streaming allocates nothing a request.
///
/// Key [`Names::NONE`] is the absent name. Keys are given in the order in which names first appear, so two passes over the same trace
/// give the same keys.
#[derive(Clone)]
pub struct Names {
    keys: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// The key of those that have no name.
    pub const NONE: u32 = 0;

    /// The most distinct names that a table takes: names are the one thing of a trace that stays in memory.
    pub const MOST: usize = 1 << 20;

    /// A table that holds the absent name alone.
    #[must_use]
    pub fn new() -> Self {
        Self { keys: HashMap::new(), names: vec!["".into()] }
    }

    /// The key of `name`, a new one if it has none yet; `None` if the table is full. The empty name is the absent one.
    pub fn intern(&mut self, name: &str) -> Option<u32> {
        if name.is_empty() {
            return Some(Self::NONE);
        }
        if let Some(&key) = self.keys.get(name) {
            return Some(key);
        }
        if self.names.len() >= Self::MOST {
            return None;
        }
        let key = self.names.len() as u32;
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.keys.insert(name, key);
        Some(key)
    }

    /// The name behind a key; `None` for the absent name and for a key of another table.
    #[must_use]
    pub fn get(&self, key: u32) -> Option<&str> {
        self.names.get(key as usize).map(AsRef::as_ref).filter(|name: &&str| !name.is_empty())
    }

    /// How many names there are, the absent one not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len() - 1
    }

    /// Whether there is no name but the absent one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.names[1..]).finish()
    }
}

/// What gives requests, one at a time, in the order of their arrival.
pub trait Source {
    /// The next request; `Ok(None)` at the end, and again after it.
    ///
    /// # Errors
    /// What is wrong with the trace, at the place where it is. After an error the source is at its end.
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError>;

    /// How many lanes the requests are made for: a large one holds so many. 1 to 64.
    fn lanes(&self) -> usize;

    /// The tenants that appeared so far.
    fn tenants(&self) -> &Names;

    /// The models that appeared so far.
    fn models(&self) -> &Names;

    /// The requests as an iterator, which ends at the first error.
    fn iter(&mut self) -> Iter<'_, Self>
    where
        Self: Sized,
    {
        Iter { source: self, ended: false }
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        (**self).next_request()
    }

    fn lanes(&self) -> usize {
        (**self).lanes()
    }

    fn tenants(&self) -> &Names {
        (**self).tenants()
    }

    fn models(&self) -> &Names {
        (**self).models()
    }
}

/// The requests of a [`Source`] as an iterator: [`Source::iter`].
#[derive(Debug)]
pub struct Iter<'a, S> {
    source: &'a mut S,
    ended: bool,
}

impl<S: Source> Iterator for Iter<'_, S> {
    type Item = Result<TraceRequest, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.source.next_request().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_keys() {
        let mut names = Names::new();
        assert!(names.is_empty());
        assert_eq!(
            (names.intern("a"), names.intern("b"), names.intern("a"), names.intern("")),
            (Some(1), Some(2), Some(1), Some(0))
        );
        assert_eq!((names.get(2), names.get(Names::NONE), names.get(3), names.len()), (Some("b"), None, None, 2));
    }
}
