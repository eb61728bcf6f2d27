"use strict";
// Mouse, wheel, fingers on the drawing: drag moves it, pinch or Ctrl and wheel zooms, a click selects.
{
  const { useEffect, useRef } = STARK;
  const CLICK_PX = 5; // a pointer that moved less than this did not drag

  function usePointer(canvas, options) {
    const latest = useRef(options);
    latest.current = options;
    const zoomAt = (x, y, factor) => {
      const { view, paint, smallest, largest } = latest.current;
      const scale = Math.min(largest, Math.max(smallest, view.scale * factor));
      view.x = x - ((x - view.x) * scale) / view.scale;
      view.y = y - ((y - view.y) * scale) / view.scale;
      view.scale = scale;
      view.isMoved = true;
      paint();
    };
    useEffect(() => listen(canvas.current, latest, zoomAt), []);
    return { zoomAt };
  }

  function listen(element, latest, zoomAt) {
    const fingers = new Map();
    let start = null;
    const place = (event) => {
      const box = element.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const move = (dx, dy) => {
      const { view, paint } = latest.current;
      view.x += dx;
      view.y += dy;
      view.isMoved = true;
      paint();
    };
    const on = {
      pointerdown(event) {
        const at = place(event);
        fingers.set(event.pointerId, at);
        start = { ...at, isDrag: fingers.size > 1 };
        element.setPointerCapture(event.pointerId);
      },
      pointermove(event) {
        const at = place(event);
        const before = fingers.get(event.pointerId);
        if (!before) {
          const point = latest.current.at(at.x, at.y);
          element.classList.toggle("is-over", Boolean(point));
          latest.current.onHover(point ? { point, ...at } : null);
          return;
        }
        if (Math.hypot(at.x - start.x, at.y - start.y) > CLICK_PX) start.isDrag = true;
        if (fingers.size === 1 && start.isDrag) move(at.x - before.x, at.y - before.y);
        if (fingers.size === 2) pinch(fingers, event.pointerId, at, zoomAt);
        fingers.set(event.pointerId, at);
      },
      pointerup(event) {
        const at = place(event);
        const wasClick = fingers.size === 1 && start && !start.isDrag;
        fingers.delete(event.pointerId);
        if (wasClick) latest.current.onPoint(latest.current.at(at.x, at.y));
      },
      pointercancel(event) {
        fingers.delete(event.pointerId);
      },
      pointerleave() {
        latest.current.onHover(null);
      },
      dblclick(event) {
        const at = place(event);
        latest.current.onOpen(latest.current.at(at.x, at.y));
      },
      wheel(event) {
        event.preventDefault();
        const at = place(event);
        if (event.ctrlKey || event.metaKey) zoomAt(at.x, at.y, Math.exp(-event.deltaY / 200));
        else move(-event.deltaX, -event.deltaY);
      },
    };
    for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener, { passive: false });
    return () => {
      for (const [name, listener] of Object.entries(on)) element.removeEventListener(name, listener);
    };
  }

  function pinch(fingers, moved, at, zoomAt) {
    const [other] = [...fingers].filter(([id]) => id !== moved).map(([, place]) => place);
    const before = fingers.get(moved);
    const wide = (place) => Math.hypot(place.x - other.x, place.y - other.y) || 1;
    zoomAt((at.x + other.x) / 2, (at.y + other.y) / 2, wide(at) / wide(before));
  }

  // The node that an arrow key leads to.
  function neighbour(layout, point, key) {
    const nodes = layout.points.filter((known) => known.kind === "node");
    if (!["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(key)) return undefined;
    if (!point || key === "Home") return nodes[0];
    const ends = { from: (link) => link.to === point, to: (link) => link.from === point };
    if (key === "ArrowLeft") return layout.links.find(ends.from)?.from;
    if (key === "ArrowRight") {
      return layout.links.filter(ends.to).map((link) => link.to).find((known) => known.kind === "node");
    }
    const isBeyond = (known) => (key === "ArrowUp" ? known.y < point.y : known.y > point.y);
    const column = nodes.filter((known) => known.x === point.x && isBeyond(known));
    const any = column.length ? column : nodes.filter(isBeyond);
    return any.reduce((near, known) => (!near || Math.abs(known.y - point.y) < Math.abs(near.y - point.y) ? known : near), undefined);
  }

  STARK.usePointer = usePointer;
  STARK.neighbour = neighbour;
}
