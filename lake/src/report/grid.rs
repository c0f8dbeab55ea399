//! Columns of text that line up: the tables that programs print for people.

/// To which side a column's cells are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction, column by column.
#[derive(Debug, Default)]
pub struct Grid(Vec<Column>);

#[derive(Debug)]
struct Column {
    title: String,
    short_title: Option<String>,
    align: Align,
    cells: Vec<String>,
}

/// Between two columns.
const GAP: &str = "  ";

impl Grid {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column; `short_title` stands in where the table would be too wide.
    pub fn column(
        &mut self,
        title: &str,
        short_title: Option<&str>,
        align: Align,
        cells: impl IntoIterator<Item = String>,
    ) {
        let (title, short_title) = (title.to_owned(), short_title.map(str::to_owned));
        self.0.push(Column { title, short_title, align, cells: cells.into_iter().collect() });
    }

    /// The table with its titles above. From the right, titles give way to short ones until a line has at most `width`
    /// characters.
    pub fn render(&self, width: usize) -> String {
        let mut titles: Vec<&str> = self.0.iter().map(|column| column.title.as_str()).collect();
        for (position, column) in self.0.iter().enumerate().rev() {
            let widths = self.0.iter().zip(&titles).map(|(column, title)| column.width(title));
            if widths.sum::<usize>() + GAP.len() * self.0.len().saturating_sub(1) <= width {
                break;
            }
            if let Some(short) = &column.short_title {
                titles[position] = short;
            }
        }
        self.with_titles(&titles)
    }

    fn with_titles(&self, titles: &[&str]) -> String {
        let rows = self.0.iter().map(|column| column.cells.len()).max().unwrap_or(0);
        let mut out = self.line(titles, titles);
        for row in 0..rows {
            let cells: Vec<&str> =
                self.0.iter().map(|column| column.cells.get(row).map_or("", String::as_str)).collect();
            out.push_str(&self.line(&cells, titles));
        }
        out
    }

    fn line(&self, cells: &[&str], titles: &[&str]) -> String {
        let mut line = String::new();
        for ((column, cell), title) in self.0.iter().zip(cells).zip(titles) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let room = " ".repeat(column.width(title).saturating_sub(width_of(cell)));
            match column.align {
                Align::Left => line.extend([cell, room.as_str()]),
                Align::Right => line.extend([room.as_str(), cell]),
            }
        }
        format!("{}\n", line.trim_end())
    }
}

impl Column {
    fn width(&self, title: &str) -> usize {
        self.cells.iter().map(|cell| width_of(cell)).max().unwrap_or(0).max(width_of(title))
    }
}

fn width_of(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_titles_shrink() {
        let mut grid = Grid::new();
        grid.column("silver", None, Align::Left, ["orders".to_owned(), "p".to_owned()]);
        grid.column("superseded", Some("super."), Align::Right, ["12".to_owned(), "1,024".to_owned()]);
        assert_eq!(grid.render(80), "silver  superseded\norders          12\np            1,024\n");
        assert_eq!(grid.render(17), "silver  super.\norders      12\np        1,024\n");
    }
}
