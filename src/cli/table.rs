//! Aligned columns for people.

use std::fmt;

/// A table with a heading; every row has as many cells as the heading.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With a heading.
    pub fn new(heading: &[&str]) -> Table {
        Table { rows: vec![heading.iter().map(|cell| cell.to_string()).collect()] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it is not as wide as the heading.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row as wide as its heading");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.rows[0].len())
            .map(|i| self.rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &self.rows {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let mut table = Table::new(&["TOPIC", "N"]);
        table.row(vec!["orders-of-old".into(), "1".into()]);
        table.row(vec!["ß".into(), "12".into()]);
        assert_eq!(table.to_string(), "TOPIC          N\norders-of-old  1\nß              12\n");
    }
}
