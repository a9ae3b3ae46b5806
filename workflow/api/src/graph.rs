//! Orders of directed graphs.

/// A cycle, by the numbers of its nodes in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<u32>);

/// Returns the nodes such that each comes after those it depends on, in time linear in nodes and edges.
///
/// # Errors
/// One of the graph's cycles.
pub fn order(dependencies: &[Vec<u32>]) -> Result<Vec<u32>, Cycle> {
    let mut dependents: Vec<Vec<u32>> = vec![Vec::new(); dependencies.len()];
    let mut open: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    for (node, before) in (0u32..).zip(dependencies) {
        for other in before {
            dependents[*other as usize].push(node);
        }
    }
    let mut ordered: Vec<u32> =
        (0u32..).zip(&open).filter(|(_, open)| **open == 0).map(|(node, _)| node).collect();
    let mut next = 0;
    while let Some(node) = ordered.get(next).copied() {
        next += 1;
        for dependent in &dependents[node as usize] {
            let open = &mut open[*dependent as usize];
            *open -= 1;
            if *open == 0 {
                ordered.push(*dependent);
            }
        }
    }
    if ordered.len() == dependencies.len() { Ok(ordered) } else { Err(cycle(dependencies, &open)) }
}

/// Follows dependencies that are open until a node comes again.
fn cycle(dependencies: &[Vec<u32>], open: &[usize]) -> Cycle {
    let is_open = |node: &u32| open[*node as usize] > 0;
    let mut at = (0u32..).zip(open).find(|(_, open)| **open > 0).map_or(0, |(node, _)| node);
    let mut position = vec![usize::MAX; dependencies.len()];
    let mut path = Vec::new();
    loop {
        if position[at as usize] != usize::MAX {
            let mut cycle = path.split_off(position[at as usize]);
            cycle.reverse();
            return Cycle(cycle);
        }
        position[at as usize] = path.len();
        path.push(at);
        match dependencies[at as usize].iter().find(|other| is_open(other)) {
            Some(other) => at = *other,
            None => return Cycle(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_dependencies_first_and_a_cycle_is_named() {
        assert_eq!(order(&[vec![1, 2], vec![2], vec![]]), Ok(vec![2, 1, 0]));
        assert_eq!(order(&[]), Ok(vec![]));
        let Err(Cycle(mut cycle)) = order(&[vec![], vec![0, 3], vec![1], vec![2], vec![3]]) else {
            panic!("a cycle")
        };
        cycle.sort_unstable();
        assert_eq!(cycle, [1, 2, 3]);
        assert_eq!(order(&[vec![0]]), Err(Cycle(vec![0])));
    }
}
