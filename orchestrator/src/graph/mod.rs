//! The tasks of a spec as a graph: who needs whom, in which order they may run, and what runs in circles.

mod draw;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lake::TableName;
use petgraph::Direction;
use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};

pub(crate) use draw::Format;

/// Tasks that need one another. An edge goes from a task to one that needs it. Free of cycles.
#[derive(Debug)]
pub(crate) struct Graph {
    nodes: DiGraph<TableName, ()>,
    by_name: BTreeMap<TableName, NodeIndex>,
    order: Vec<NodeIndex>,
}

/// Tasks that need themselves, as a path that ends where it starts: each needs the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cycle(pub(crate) Vec<TableName>);

impl Graph {
    /// The graph of tasks with what each needs; needs that are no task are left out.
    ///
    /// # Errors
    /// Every cycle, one for each group of tasks that need one another.
    pub(crate) fn new(tasks: &[(TableName, BTreeSet<TableName>)]) -> Result<Self, Vec<Cycle>> {
        let mut nodes = DiGraph::new();
        let by_name: BTreeMap<_, _> =
            tasks.iter().map(|(name, _)| (name.clone(), nodes.add_node(name.clone()))).collect();
        for (name, needs) in tasks {
            for need in needs {
                if let (Some(from), Some(to)) = (by_name.get(need), by_name.get(name)) {
                    nodes.update_edge(*from, *to, ());
                }
            }
        }
        match toposort(&nodes, None) {
            Ok(_) => {
                let order = steady_order(&nodes);
                Ok(Self { nodes, by_name, order })
            }
            Err(_) => Err(cycles(&nodes)),
        }
    }

    /// All tasks, each after those that it needs; layer by layer and in the order of the spec where that leaves a choice.
    pub(crate) fn order(&self) -> impl Iterator<Item = &TableName> {
        self.order.iter().map(|node| &self.nodes[*node])
    }

    /// What a task needs directly.
    pub(crate) fn needs(&self, task: &TableName) -> Vec<&TableName> {
        self.neighbours(task, Direction::Incoming)
    }

    /// The tasks of `chosen` that `task` needs directly, or through none but tasks that are not chosen.
    pub(crate) fn needs_within(&self, task: &TableName, chosen: &BTreeSet<TableName>) -> BTreeSet<TableName> {
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open = self.needs(task);
        while let Some(need) = open.pop() {
            if chosen.contains(need) {
                found.insert(need.clone());
            } else if seen.insert(need) {
                open.extend(self.needs(need));
            }
        }
        found
    }

    /// Some tasks with all that they need, `steps` away at most; without a limit, directly or not.
    pub(crate) fn with_needs(&self, tasks: &BTreeSet<TableName>, steps: Option<usize>) -> BTreeSet<TableName> {
        self.around(tasks, steps, Direction::Incoming)
    }

    /// Some tasks with all that need them, directly or not.
    pub(crate) fn with_dependents(&self, tasks: &BTreeSet<TableName>) -> BTreeSet<TableName> {
        self.with_dependents_within(tasks, None)
    }

    /// The same, `steps` away at most.
    pub(crate) fn with_dependents_within(
        &self,
        tasks: &BTreeSet<TableName>,
        steps: Option<usize>,
    ) -> BTreeSet<TableName> {
        self.around(tasks, steps, Direction::Outgoing)
    }

    fn around(&self, tasks: &BTreeSet<TableName>, steps: Option<usize>, direction: Direction) -> BTreeSet<TableName> {
        let mut found = tasks.clone();
        let mut edge: Vec<&TableName> = tasks.iter().collect();
        let mut taken = 0;
        while !edge.is_empty() && steps.is_none_or(|steps| taken < steps) {
            taken += 1;
            let next = edge.iter().flat_map(|task| self.neighbours(task, direction));
            edge = next.filter(|task| found.insert((*task).clone())).collect();
        }
        found
    }

    fn neighbours(&self, task: &TableName, direction: Direction) -> Vec<&TableName> {
        let Some(node) = self.by_name.get(task) else { return Vec::new() };
        let mut found: Vec<_> = self.nodes.neighbors_directed(*node, direction).collect();
        found.sort();
        found.into_iter().map(|node| &self.nodes[node]).collect()
    }
}

/// A topological order that depends on nothing but the spec: of the tasks that may come next, the one of the lowest
/// layer and then the first in the spec.
fn steady_order(nodes: &DiGraph<TableName, ()>) -> Vec<NodeIndex> {
    let mut open: BTreeMap<NodeIndex, usize> =
        nodes.node_indices().map(|node| (node, nodes.neighbors_directed(node, Direction::Incoming).count())).collect();
    let mut ready: BTreeSet<_> =
        open.iter().filter(|(_, needs)| **needs == 0).map(|(node, _)| (nodes[*node].layer, *node)).collect();
    let mut order = Vec::with_capacity(open.len());
    while let Some((_, node)) = ready.pop_first() {
        order.push(node);
        for next in nodes.neighbors_directed(node, Direction::Outgoing) {
            if let Some(needs) = open.get_mut(&next) {
                *needs -= 1;
                if *needs == 0 {
                    ready.insert((nodes[next].layer, next));
                }
            }
        }
    }
    order
}

fn cycles(nodes: &DiGraph<TableName, ()>) -> Vec<Cycle> {
    let groups = tarjan_scc(nodes).into_iter();
    let mut groups: Vec<Vec<NodeIndex>> =
        groups.filter(|group| group.len() > 1 || nodes.contains_edge(group[0], group[0])).collect();
    groups.iter_mut().for_each(|group| group.sort());
    groups.sort();
    groups.iter().map(|group| shortest_cycle(nodes, group)).collect()
}

/// The shortest way from the first task of a group back to it, along what each needs.
fn shortest_cycle(nodes: &DiGraph<TableName, ()>, group: &[NodeIndex]) -> Cycle {
    let start = group[0];
    let mut came_from: BTreeMap<NodeIndex, NodeIndex> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        let mut needs: Vec<_> = nodes.neighbors_directed(node, Direction::Incoming).collect();
        needs.sort();
        for next in needs {
            if next == start {
                let mut path = vec![start];
                let mut step = node;
                while step != start {
                    path.push(step);
                    step = came_from[&step];
                }
                path.push(start);
                path.reverse();
                return Cycle(path.into_iter().map(|node| nodes[node].clone()).collect());
            }
            if group.contains(&next) && !came_from.contains_key(&next) {
                came_from.insert(next, node);
                queue.push_back(next);
            }
        }
    }
    Cycle(group.iter().map(|node| nodes[*node].clone()).collect())
}

impl std::fmt::Display for Cycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(" → "))
    }
}
