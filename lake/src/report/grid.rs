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

#[derive(Debug, Clone)]
struct Column {
    title: String,
    short_title: Option<String>,
    align: Align,
    cells: Vec<String>,
    /// To so many characters its cells may be cut.
    least: Option<usize>,
}

/// The cell of a figure that is zero or has no meaning there.
pub const NOTHING: &str = "-";

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
        self.0.push(Column { title, short_title, align, cells: cells.into_iter().collect(), least: None });
    }

    /// Adds a column of texts that are cut to `least` characters at least where the table would be too wide.
    pub fn fitted(&mut self, title: &str, least: usize, cells: impl IntoIterator<Item = String>) {
        self.column(title, None, Align::Left, cells);
        if let Some(column) = self.0.last_mut() {
            column.least = Some(least);
        }
    }

    /// The table with its titles above. While a line has more than `width` characters, titles give way to short ones
    /// and then columns without any value are left out, and then texts that may be are cut, all from the right.
    pub fn render(&self, width: usize) -> String {
        let text = Self::fitting(width, &self.0);
        let over = text.lines().map(width_of).max().unwrap_or(0).saturating_sub(width);
        let mut columns = self.0.clone();
        let cut = columns.iter_mut().rev().filter(|column| column.least.is_some());
        if over == 0 || cut.fold(over, |over, column| over.saturating_sub(column.cut(over))) == over {
            return text;
        }
        Self::fitting(width, &columns)
    }

    fn fitting(width: usize, columns: &[Column]) -> String {
        let mut shown: Vec<(&Column, &str)> = columns.iter().map(|column| (column, column.title.as_str())).collect();
        for position in (0..shown.len()).rev() {
            if width_of_line(&shown) > width
                && let Some(short) = &shown[position].0.short_title
            {
                shown[position].1 = short;
            }
        }
        for position in (0..shown.len()).rev() {
            if width_of_line(&shown) > width && shown[position].0.is_empty() {
                shown.remove(position);
            }
        }
        render(&shown, false)
    }

    /// The whole table, however wide, with a line below the titles.
    pub fn render_ruled(&self) -> String {
        let shown: Vec<(&Column, &str)> = self.0.iter().map(|column| (column, column.title.as_str())).collect();
        render(&shown, true)
    }
}

fn width_of_line(shown: &[(&Column, &str)]) -> usize {
    let widths: usize = shown.iter().map(|(column, title)| column.width(title)).sum();
    widths + GAP.len() * shown.len().saturating_sub(1)
}

fn render(shown: &[(&Column, &str)], ruled: bool) -> String {
    let rows = shown.iter().map(|(column, _)| column.cells.len()).max().unwrap_or(0);
    let mut out = line(shown, |_, title| title);
    if ruled {
        let rules = shown.iter().map(|(column, title)| "-".repeat(column.width(title)));
        out.push_str(&format!("{}\n", rules.collect::<Vec<_>>().join(GAP)));
    }
    for row in 0..rows {
        out.push_str(&line(shown, |column, _| column.cells.get(row).map_or("", String::as_str)));
    }
    out
}

fn line<'a>(shown: &[(&'a Column, &'a str)], cell: impl Fn(&'a Column, &'a str) -> &'a str) -> String {
    let mut line = String::new();
    for (position, (column, title)) in shown.iter().enumerate() {
        if position > 0 {
            line.push_str(GAP);
        }
        let cell = cell(column, title);
        let room = " ".repeat(column.width(title).saturating_sub(width_of(cell)));
        match column.align {
            Align::Left => line.extend([cell, room.as_str()]),
            Align::Right => line.extend([room.as_str(), cell]),
        }
    }
    format!("{}\n", line.trim_end())
}

impl Column {
    /// Cuts cells so that the column is so much narrower, as far as it may be; by how much it is.
    fn cut(&mut self, over: usize) -> usize {
        let was = self.width(&self.title);
        let wanted = was.saturating_sub(over).max(self.least.unwrap_or(was)).max(width_of(&self.title));
        for cell in self.cells.iter_mut().filter(|cell| width_of(cell) > wanted) {
            *cell = cell.chars().take(wanted.saturating_sub(1)).chain(['…']).collect();
        }
        was.saturating_sub(wanted)
    }

    /// True for a column of figures that are all zero.
    fn is_empty(&self) -> bool {
        self.align == Align::Right && self.cells.iter().all(|cell| cell == NOTHING)
    }

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
    fn texts_are_cut_where_a_table_would_be_too_wide() {
        let mut grid = Grid::new();
        grid.fitted("operation", 10, ["SET TBLPROPERTIES".to_owned(), "WRITE".to_owned()]);
        grid.column("rows", None, Align::Right, ["1".to_owned(), "2".to_owned()]);
        assert_eq!(grid.render(80), "operation          rows\nSET TBLPROPERTIES     1\nWRITE                 2\n");
        assert_eq!(grid.render(20), "operation       rows\nSET TBLPROPER…     1\nWRITE              2\n");
        assert_eq!(grid.render(5), "operation   rows\nSET TBLPR…     1\nWRITE          2\n");
    }

    #[test]
    fn columns_line_up_and_titles_shrink() {
        let mut grid = Grid::new();
        grid.column("silver", None, Align::Left, ["orders".to_owned(), "p".to_owned()]);
        grid.column("superseded", Some("super."), Align::Right, ["12".to_owned(), "1,024".to_owned()]);
        assert_eq!(grid.render(80), "silver  superseded\norders          12\np            1,024\n");
        assert_eq!(grid.render(17), "silver  super.\norders      12\np        1,024\n");
        grid.column("stale", None, Align::Right, [NOTHING.to_owned(), NOTHING.to_owned()]);
        assert_eq!(grid.render(17), "silver  super.\norders      12\np        1,024\n");
        assert_eq!(grid.render(22), "silver  super.  stale\norders      12      -\np        1,024      -\n");
    }
}
