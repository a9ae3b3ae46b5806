// Places for the nodes of a graph without cycles: layers from left to right, few crossings. Pure.

export interface Edge {
  from: string;
  to: string;
}
export interface Placed {
  id: string;
  x: number;
  y: number;
}
export interface Layout {
  nodes: Map<string, Placed>;
  edges: (Edge & { path: string })[];
  width: number;
  height: number;
}

export const NODE = { width: 190, height: 46 };
const GAP = { x: 64, y: 18 };
/** Sweeps that bring nodes nearer to those they are joined with. */
const SWEEPS = 4;

/** The layer of each node: one more than that of what it comes after. Edges that close a cycle count for nothing. */
function layers(ids: string[], edges: Edge[]): Map<string, number> {
  const before = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const { from, to } of edges) before.get(to)?.push(from);
  const found = new Map<string, number>();
  const open = new Set<string>();
  const visit = (id: string): number => {
    const known = found.get(id);
    if (known !== undefined) return known;
    if (open.has(id)) return -1;
    open.add(id);
    const layer = Math.max(-1, ...(before.get(id) ?? []).filter((one) => before.has(one)).map(visit)) + 1;
    open.delete(id);
    found.set(id, layer);
    return layer;
  };
  ids.forEach(visit);
  return found;
}

export function layout(ids: string[], all: Edge[]): Layout {
  const known = new Set(ids);
  const edges = all.filter(({ from, to }) => known.has(from) && known.has(to) && from !== to);
  const of = layers(ids, edges);
  const rows: string[][] = [];
  for (const id of ids) (rows[of.get(id) ?? 0] ??= []).push(id);
  for (let index = 0; index < rows.length; index++) rows[index] ??= [];
  const place = new Map<string, number>();
  const number = () => rows.forEach((row) => row.forEach((id, index) => place.set(id, index)));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forward = sweep % 2 === 0;
    for (const row of forward ? rows : rows.toReversed()) {
      const middle = new Map(
        row.map((id) => {
          const near = edges.filter((edge) => (forward ? edge.to : edge.from) === id).map((edge) => place.get(forward ? edge.from : edge.to) ?? 0);
          return [id, near.length ? near.reduce((a, b) => a + b, 0) / near.length : (place.get(id) ?? 0)];
        }),
      );
      row.sort((a, b) => (middle.get(a) ?? 0) - (middle.get(b) ?? 0));
      row.forEach((id, index) => place.set(id, index));
    }
  }
  const most = Math.max(1, ...rows.map((row) => row.length));
  const step = { x: NODE.width + GAP.x, y: NODE.height + GAP.y };
  const nodes = new Map<string, Placed>();
  rows.forEach((row, column) =>
    row.forEach((id, index) => nodes.set(id, { id, x: column * step.x, y: (index + (most - row.length) / 2) * step.y })),
  );
  const curve = ({ from, to }: Edge) => {
    const [a, b] = [nodes.get(from), nodes.get(to)];
    if (!a || !b) return '';
    const [x1, y1, x2, y2] = [a.x + NODE.width, a.y + NODE.height / 2, b.x, b.y + NODE.height / 2];
    const bend = Math.max(GAP.x / 2, (x2 - x1) / 2);
    return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  };
  return {
    nodes,
    edges: edges.map((edge) => ({ ...edge, path: curve(edge) })),
    width: Math.max(NODE.width, rows.length * step.x - GAP.x),
    height: Math.max(NODE.height, most * step.y - GAP.y),
  };
}
