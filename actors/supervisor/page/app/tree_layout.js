"use strict";
// Where each node of the drawing is.  A tree of more than FOLD_ABOVE nodes is folded: what matters
// stays (the way to the best, to the leaders, to what is under way), the rest becomes "+57".
{
  const FOLD_ABOVE = 2000;
  const FOLD_TO = 500; // nodes, as far as the ways that matter allow
  const MOST_CHILDREN = 16; // of one node in a folded tree
  const LEADERS = 20;

  // Return {points, links, columns, rows, hidden}.  A point is {column, row, kind, isLeaf} with its
  // node, its attempt under way, or the number of nodes that are folded into it.
  function treeLayout(model, task, { unfolded, folded }) {
    const root = rootOf(model, task);
    if (!root) return { points: [], links: [], columns: 0, rows: 0, hidden: 0 };
    const shown = shownNumbers(model, task, unfolded);
    const pending = new Map();
    for (const attempt of model.underWay(task)) {
      if (model.node(task, attempt.number)) continue; // it is being confirmed
      if (!pending.has(attempt.parent)) pending.set(attempt.parent, []);
      pending.get(attempt.parent).push(attempt);
    }
    let hidden = 0;
    const sizes = model.subtreeSizes(task);
    const children = (entry) => {
      if (entry.kind !== "node") return null;
      const own = [...model.children(task, entry.node.number)].sort((a, b) => a.number - b.number);
      const isFolded = folded.has(entry.node.number);
      const isVisible = (node) => !isFolded && (!shown || shown.has(node.number));
      const visible = own.filter(isVisible);
      const list = visible.map((node) => ({ kind: "node", node }));
      for (const attempt of pending.get(entry.node.number) ?? []) list.push({ kind: "attempt", attempt });
      const left = own.reduce((sum, node) => (isVisible(node) ? sum : sum + sizes.get(node.number)), 0);
      if (left > 0) {
        hidden += left;
        list.push({ kind: "folded", parent: entry.node.number, hidden: left });
      }
      return list.length ? list : null;
    };
    const laid = window.d3.tree().nodeSize([1, 1]).separation(() => 1)(
      window.d3.hierarchy({ kind: "node", node: root }, children),
    );
    return { ...positions(laid), hidden };
  }

  function rootOf(model, task) {
    const nodes = model.numbers.get(task) ?? [];
    return model.node(task, 0) ?? nodes.reduce((low, node) => (!low || node.number < low.number ? node : low), undefined);
  }

  function positions(laid) {
    const points = [];
    const links = [];
    let [low, high, right] = [Infinity, -Infinity, 0];
    laid.each((place) => {
      const point = { ...place.data, column: place.y, row: place.x, isLeaf: !place.children };
      place.point = point;
      points.push(point);
      low = Math.min(low, point.row);
      high = Math.max(high, point.row);
      right = Math.max(right, point.column);
    });
    for (const point of points) point.row -= low;
    measureRoom(points);
    laid.each((place) => {
      if (place.parent) links.push({ from: place.parent.point, to: place.point });
    });
    return { points, links, columns: right, rows: high - low };
  }

  // How many columns are free to the right of each point: its label may need more than one.
  function measureRoom(points) {
    const bands = new Map();
    for (const point of points) {
      const band = Math.floor(point.row);
      if (!bands.has(band)) bands.set(band, []);
      bands.get(band).push(point);
    }
    for (const point of points) {
      point.room = point.isLeaf ? Infinity : 1;
      for (const band of [-1, 0, 1]) {
        for (const other of bands.get(Math.floor(point.row) + band) ?? []) {
          const isBeside = other.column > point.column && Math.abs(other.row - point.row) < 0.75;
          if (isBeside) point.room = Math.min(point.room, other.column - point.column);
        }
      }
    }
  }

  // Give each point its place: columns and rows as far apart as the drawing has room for.
  function place(layout, stepX, stepY) {
    for (const point of layout.points) {
      point.x = point.column * stepX;
      point.y = point.row * stepY;
    }
  }

  // The numbers that are drawn, or null where all are.
  function shownNumbers(model, task, unfolded) {
    const nodes = model.numbers.get(task) ?? [];
    if (nodes.length <= FOLD_ABOVE) return null;
    const shown = new Set();
    const keep = (number) => {
      for (const step of model.path(task, number)) shown.add(step);
    };
    const best = model.tasks.get(task)?.best;
    if (best != null) keep(best);
    const leaders = nodes.filter((node) => node.verdict === "correct").sort((a, b) => (b.speedup ?? 0) - (a.speedup ?? 0));
    for (const node of leaders.slice(0, LEADERS)) keep(node.number);
    for (const attempt of model.underWay(task)) keep(attempt.parent);
    for (const number of unfolded) {
      keep(number);
      for (const child of model.children(task, number)) shown.add(child.number);
    }
    // Then breadth first from the root, the largest subtrees first, as far as there is room.
    const queue = model.treeOrder(task).filter((row) => row.depth === 0).map((row) => row.node);
    const sizes = model.subtreeSizes(task);
    const weight = (node) => sizes.get(node.number) + (node.verdict === "correct" ? 0.5 : 0);
    for (let at = 0; at < queue.length && shown.size < FOLD_TO; at += 1) {
      shown.add(queue[at].number);
      const heaviest = [...model.children(task, queue[at].number)].sort((a, b) => weight(b) - weight(a));
      queue.push(...heaviest.slice(0, MOST_CHILDREN));
    }
    return shown;
  }

  STARK.treeLayout = treeLayout;
  STARK.placePoints = place;
  STARK.FOLD_ABOVE = FOLD_ABOVE;
}
