//! The graph on paper: a tree for a terminal, Mermaid for Markdown, DOT for Graphviz.

use std::collections::BTreeSet;
use std::fmt::Write;

use clap::ValueEnum;
use lake::{Layer, TableName};
use petgraph::Direction;

use super::Graph;

/// How the graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A tree for a terminal
    Text,
    /// A Mermaid flowchart, for Markdown
    Mermaid,
    /// DOT, for Graphviz
    Dot,
}

impl Graph {
    /// Draws the graph; ends with a line break.
    pub(crate) fn draw(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Mermaid => self.mermaid(),
            Format::Dot => self.dot(),
        }
    }

    /// Every task below each that it needs; what follows a task is drawn once.
    fn text(&self) -> String {
        let mut out = String::new();
        let mut drawn = BTreeSet::new();
        for task in self.order().filter(|task| self.needs(task).is_empty()) {
            let _ = writeln!(out, "{task}");
            self.branches(task, "", &mut drawn, &mut out);
        }
        out
    }

    fn branches(&self, task: &TableName, indent: &str, drawn: &mut BTreeSet<TableName>, out: &mut String) {
        drawn.insert(task.clone());
        let followers = self.neighbours(task, Direction::Outgoing);
        for (position, next) in followers.iter().enumerate() {
            let last = position + 1 == followers.len();
            let (corner, line) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let others: Vec<String> =
                self.needs(next).into_iter().filter(|need| *need != task).map(ToString::to_string).collect();
            let also = if others.is_empty() { String::new() } else { format!("  (and {})", others.join(", ")) };
            let again = drawn.contains(*next) && !self.neighbours(next, Direction::Outgoing).is_empty();
            let above = if again { "  ↑" } else { "" };
            let _ = writeln!(out, "{indent}{corner}{next}{also}{above}");
            if !again {
                self.branches(next, &format!("{indent}{line}"), drawn, out);
            }
        }
    }

    fn mermaid(&self) -> String {
        let mut out = String::from("flowchart LR\n");
        for (layer, tasks) in self.by_layer() {
            let _ = writeln!(out, "  subgraph {layer}");
            for task in tasks {
                let _ = writeln!(out, "    {}[\"{task}\"]", self.id(task));
            }
            out.push_str("  end\n");
        }
        for (from, to) in self.edges() {
            let _ = writeln!(out, "  {} --> {}", self.id(from), self.id(to));
        }
        out
    }

    fn dot(&self) -> String {
        let mut out = String::from("digraph pipeline {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n");
        for (layer, tasks) in self.by_layer() {
            let _ = writeln!(out, "  subgraph cluster_{layer} {{\n    label=\"{layer}\";");
            for task in tasks {
                let _ = writeln!(out, "    \"{task}\";");
            }
            out.push_str("  }\n");
        }
        for (from, to) in self.edges() {
            let _ = writeln!(out, "  \"{from}\" -> \"{to}\";");
        }
        out.push_str("}\n");
        out
    }

    fn by_layer(&self) -> Vec<(&'static str, Vec<&TableName>)> {
        let layers = [Layer::Bronze, Layer::Silver, Layer::Gold].into_iter();
        let tasks = |layer| self.order().filter(|task| task.layer == layer).collect::<Vec<_>>();
        layers.map(|layer| (layer.as_str(), tasks(layer))).filter(|(_, tasks)| !tasks.is_empty()).collect()
    }

    fn edges(&self) -> impl Iterator<Item = (&TableName, &TableName)> {
        self.order().flat_map(|task| self.needs(task).into_iter().map(move |need| (need, task)))
    }

    /// A name that Mermaid takes as it is.
    fn id(&self, task: &TableName) -> String {
        task.to_string().replace(['.', '-'], "_")
    }
}
