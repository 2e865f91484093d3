//! Measured values: `bench` records and prints them, and the performance page is generated from them.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// The values of one measurement: a row for each measured program, and a column for each quantity.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Figures {
    /// In the order in which they were first recorded.
    pub rows: Vec<Row>,
}

/// The values of one program.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// The name of the program, with a description of the run if there are several.
    pub name: String,
    /// The quantities with their units, such as `peak memory, MB`, and the value of each round.
    pub values: Vec<(String, Vec<f64>)>,
}

/// Median and range of the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle value, or the mean of the two middle ones.
    pub median: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

impl Figures {
    /// Adds the value of one round.
    pub fn record(&mut self, name: &str, quantity: &str, value: f64) {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name: name.to_owned(), values: Vec::new() });
            self.rows.len() - 1
        });
        let values = &mut self.rows[at].values;
        match values.iter_mut().find(|(recorded, _)| recorded == quantity) {
            Some((_, rounds)) => rounds.push(value),
            None => values.push((quantity.to_owned(), vec![value])),
        }
    }

    /// Median and range of one program's rounds.
    pub fn summary(&self, name: &str, quantity: &str) -> Option<Summary> {
        self.rows.iter().find(|row| row.name == name)?.summary(quantity)
    }

    /// The median of one program's rounds; not a number if there are none.
    pub fn median(&self, name: &str, quantity: &str) -> f64 {
        self.summary(name, quantity).map_or(f64::NAN, |summary| summary.median)
    }

    /// The quantities in the order in which they were first recorded.
    fn quantities(&self) -> Vec<&str> {
        let mut all = Vec::new();
        for (quantity, _) in self.rows.iter().flat_map(|row| &row.values) {
            if !all.contains(&quantity.as_str()) {
                all.push(quantity.as_str());
            }
        }
        all
    }

    /// A Markdown table with the median and the range of each value.
    pub fn table(&self) -> String {
        let quantities = self.quantities();
        let mut table = format!("| | {} |\n|---|{}\n", quantities.join(" | "), "---|".repeat(quantities.len()));
        for row in &self.rows {
            let cells = quantities.iter().map(|quantity| row.summary(quantity).map(Summary::text).unwrap_or_default());
            // A String never fails.
            let _ = writeln!(table, "| {} | {} |", row.name, cells.collect::<Vec<_>>().join(" | "));
        }
        table
    }
}

impl Row {
    /// Median and range of a quantity.
    pub fn summary(&self, quantity: &str) -> Option<Summary> {
        let (_, rounds) = self.values.iter().find(|(recorded, _)| recorded == quantity)?;
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        Some(Summary { median: median(&sorted)?, least: *sorted.first()?, most: *sorted.last()? })
    }
}

impl Summary {
    /// `839 (830 to 902)`, or only the median if all values are shown as the same number.
    pub fn text(self) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(number);
        if least == most { median } else { format!("{median} ({least} to {most})") }
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[sorted.len() / 2 - 1], upper) } else { upper })
}

/// Three significant digits, and no decimals for integers.
pub fn number(value: f64) -> String {
    let decimals = match value {
        _ if value.fract() == 0.0 || value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ if value >= 0.0995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_medians_and_ranges() {
        let mut figures = Figures::default();
        for (name, value) in [("ours", 901.6), ("theirs", 786.0), ("ours", 830.4), ("theirs", 786.2)] {
            figures.record(name, "volumes/s", value);
        }
        figures.record("theirs", "peak memory, MB", 83.91);
        assert_eq!(
            figures.table(),
            "| | volumes/s | peak memory, MB |\n|---|---|---|\n| ours | 866 (830 to 902) |  |\n| theirs | 786 | 83.9 |\n"
        );
        assert!(figures.median("nothing", "volumes/s").is_nan());
    }

    #[test]
    fn median_of_an_odd_count_is_the_middle_value() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }
}
