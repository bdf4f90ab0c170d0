//! A failure as the user of a program sees it.

use std::error::Error;
use std::fmt;

use crate::Exit;

/// What a program prints and exits with when it cannot go on.
///
/// The message says what was found and what was expected, `hint` what to do next. The source is not repeated in the
/// message: [`Failure::chain`] prints it at the edge.
#[derive(Debug)]
pub struct Failure {
    /// The exit code the process ends with.
    pub exit: Exit,
    /// A stable name for `--json`, such as `checksum-differs`.
    pub name: &'static str,
    /// One sentence without a final period.
    pub message: String,
    /// What the user can do now, if there is something.
    pub hint: Option<String>,
    /// What lies behind it.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure with an exit code, a stable name and a message.
    pub fn new(exit: Exit, name: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            name,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the error that caused it.
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        self.source = Some(source.into());
        self
    }

    /// The messages of all causes, outermost first, without repeats.
    pub fn chain(&self) -> Vec<String> {
        let mut causes: Vec<String> = Vec::new();
        let mut next: Option<&(dyn Error + 'static)> = self.source.as_deref().map(|e| e as _);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !self.message.contains(&text) && !causes.iter().any(|seen| seen.contains(&text)) {
                causes.push(text);
            }
            next = cause.source();
        }
        causes
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_each_cause_once() {
        let cause = std::io::Error::other("disk on fire");
        let failure = Failure::new(Exit::Failed, "write", "cannot write a.txt: disk on fire").because(cause);
        assert!(failure.chain().is_empty());
        let failure = Failure::new(Exit::Failed, "write", "cannot write a.txt").because(std::io::Error::other("full"));
        assert_eq!(failure.chain(), ["full"]);
    }
}
