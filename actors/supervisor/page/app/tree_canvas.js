"use strict";
// The drawing of the tree with pointer and keyboard.
{
  const { html, useEffect, useLayoutEffect, useMemo, useRef, useState } = STARK;
  const [SMALLEST, LARGEST] = [0.08, 6];
  const [LEFT, RIGHT, MARGIN] = [26, 165, 34]; // on the right is room for the last labels
  const [NARROW, WIDE] = [24, 150]; // between columns
  const [LOW, HIGH] = [3, 54]; // between rows
  const LEAST_FIT = 0.15; // a larger tree begins at its root

  function TreeCanvas({ model, task, selected, onSelect, onOpen, view }) {
    const canvas = useRef(null);
    const drawing = useRef(null);
    const [folds, setFolds] = useState(0);
    const [hover, setHover] = useState(null);
    const structure = `${task} ${model.treeVersion} ${folds} ${model.underWay(task).map((a) => a.number).join()}`;
    const layout = useMemo(() => STARK.treeLayout(model, task, view), [structure]);
    STARK.placePoints(layout, view.stepX, view.stepY);
    const best = model.best(task);
    const bestPath = useMemo(() => new Set(best ? model.path(task, best.number) : []), [structure]);
    const scene = useRef({});
    scene.current = { layout, view, selected, best: best?.number, bestPath, top: topSpeed(model, task), now: model.now(), busy: new Set(model.underWay(task).map((attempt) => attempt.number)) };
    const paint = () => {
      scene.current.now = model.now();
      attachAttempts(layout, model, task);
      drawing.current?.paint(scene.current);
    };
    const latestPaint = useRef(paint);
    latestPaint.current = paint;

    useLayoutEffect(() => {
      drawing.current = new STARK.TreeDrawing(canvas.current);
      const again = () => {
        drawing.current.readColours();
        latestPaint.current();
      };
      const resized = new ResizeObserver(() => {
        if (!view.isMoved) fit(scene.current, drawing.current);
        latestPaint.current();
      });
      resized.observe(canvas.current);
      const theme = window.matchMedia("(prefers-color-scheme: dark)");
      theme.addEventListener("change", again);
      const seconds = setInterval(() => model.attempts.length && latestPaint.current(), 1000);
      return () => {
        resized.disconnect();
        theme.removeEventListener("change", again);
        clearInterval(seconds);
      };
    }, []);
    useLayoutEffect(() => {
      if (!view.isMoved) fit(scene.current, drawing.current);
    }, [layout.points.length, task]);
    useLayoutEffect(paint);
    useEffect(() => {
      const point = layout.points.find((known) => known.node && known.node.number === selected);
      if (!point) return;
      reveal(point, scene.current, drawing.current);
      paint();
    }, [selected]);

    const toggleFold = (number) => {
      if (view.folded.has(number)) view.folded.delete(number);
      else view.folded.add(number);
      setFolds(folds + 1);
    };
    const act = (point) => {
      if (!point) return;
      if (point.kind === "folded") {
        view.folded.delete(point.parent);
        view.unfolded.add(point.parent);
        setFolds(folds + 1);
      } else if (point.kind === "node") onSelect(point.node.number);
    };
    const pointer = STARK.usePointer(canvas, {
      view, paint, smallest: SMALLEST, largest: LARGEST,
      at: (x, y) => drawing.current.pointAt(layout, view, x, y),
      onPoint: act,
      onOpen: (point) => point?.kind === "node" && onOpen(point.node.number),
      onHover: setHover,
    });
    const zoom = (factor) => {
      const { width, height } = drawing.current.size();
      pointer.zoomAt(width / 2, height / 2, factor);
    };
    const showAll = () => {
      view.isMoved = false;
      fit(scene.current, drawing.current);
      paint();
    };
    const onKeyDown = (event) => {
      const point = layout.points.find((known) => known.node?.number === selected);
      const next = STARK.neighbour(layout, point, event.key);
      if (next) {
        onSelect(next.node.number);
      } else if (event.key === "Enter" && point) onOpen(selected);
      else if (event.key === "+" || event.key === "=") zoom(1.4);
      else if (event.key === "-") zoom(1 / 1.4);
      else if (event.key === "0") showAll();
      else if (event.key === " " && point) toggleFold(selected);
      else return;
      event.preventDefault();
    };
    const count = layout.points.filter((point) => point.kind === "node").length;
    const label = `Drawing of the tree, ${STARK.format.plural(count, "node")} shown. Arrow keys move, Enter opens, space folds, plus and minus zoom.`;
    return html`<div class="drawing">
      <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="tree drawing" aria-label=${label}
        onKeyDown=${onKeyDown}></canvas>
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" onClick=${() => zoom(1.4)} aria-label="Larger" title="Larger (+)">+</button>
        <button type="button" onClick=${() => zoom(1 / 1.4)} aria-label="Smaller" title="Smaller (−)">−</button>
        <button type="button" onClick=${showAll} title="Show all (0)">All</button>
      </div>
      ${layout.hidden > 0 && html`<p class="folded-note">${STARK.format.plural(layout.hidden, "node")} folded; the list has all.</p>`}
      <${STARK.Tooltip} hover=${hover} model=${model} />
    </div>`;
  }

  function topSpeed(model, task) {
    return model.remembered(`top ${task}`, () =>
      model.finished(task).reduce((top, node) => (node.verdict === "correct" && node.speedup > top ? node.speedup : top), 1));
  }

  // Stage and agent of an attempt change without a change of the tree.
  function attachAttempts(layout, model, task) {
    const present = new Map(model.underWay(task).map((attempt) => [attempt.number, attempt]));
    for (const point of layout.points) {
      if (point.kind === "attempt") point.attempt = present.get(point.attempt.number) ?? point.attempt;
    }
  }

  // Show the whole tree where it stays legible; a larger one from its root.
  function fit({ layout, view }, drawing) {
    const { width, height } = drawing.size();
    if (!width || !height) return;
    const wide = width - LEFT - (width > 500 ? RIGHT : RIGHT / 3);
    const high = height - 2 * MARGIN;
    const between = (low, value, top) => Math.min(top, Math.max(low, value));
    view.stepX = between(NARROW, wide / Math.max(layout.columns, 1), WIDE);
    view.stepY = between(LOW, high / Math.max(layout.rows, 1), HIGH);
    STARK.placePoints(layout, view.stepX, view.stepY);
    const [across, down] = [layout.columns * view.stepX, layout.rows * view.stepY];
    const scale = Math.min(1, wide / Math.max(across, 1), high / Math.max(down, 1));
    const isWhole = scale >= LEAST_FIT;
    view.scale = isWhole ? scale : 0.8;
    view.x = LEFT + (isWhole ? Math.max(0, (wide - across * scale) / 3) : 0);
    view.y = isWhole ? (height - down * scale) / 2 : height / 2 - (layout.points[0]?.y ?? 0) * view.scale;
  }

  // Move the drawing only as far as the point needs to be seen.
  function reveal(point, { view }, drawing) {
    const { width, height } = drawing.size();
    const [x, y] = [view.x + point.x * view.scale, view.y + point.y * view.scale];
    const into = (value, low, high) => Math.min(high, Math.max(low, value)) - value;
    const [dx, dy] = [into(x, 40, width - 120), into(y, 40, height - 40)];
    if (dx || dy) view.isMoved = true;
    view.x += dx;
    view.y += dy;
  }

  STARK.TreeCanvas = TreeCanvas;
  STARK.topSpeed = topSpeed;
}
