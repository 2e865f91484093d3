//! The result of a measurement.

use std::path::Path;

use anyhow::{Context, bail};
use testbed::figures::Figures;

/// Values, and the limits that they exceed.
pub(crate) struct Measurement {
    figures: Figures,
    exceeded: Vec<String>,
}

impl From<Figures> for Measurement {
    fn from(figures: Figures) -> Self {
        Self { figures, exceeded: Vec::new() }
    }
}

impl Measurement {
    /// Adds a limit; `text` says how it is exceeded.
    pub(crate) fn limit(mut self, holds: bool, text: impl Into<String>) -> Self {
        if !holds {
            self.exceeded.push(text.into());
        }
        self
    }

    /// Prints the table, and writes the values as JSON if there is a path. Fails if a limit is exceeded.
    pub(crate) fn finish(self, output: Option<&Path>) -> anyhow::Result<()> {
        print!("\n{}", self.figures.table());
        if let Some(path) = output {
            std::fs::write(path, serde_json::to_vec_pretty(&self.figures)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if !self.exceeded.is_empty() {
            bail!("{}", self.exceeded.join("; "));
        }
        Ok(())
    }
}
