"use strict";
// What is under the pointer in the drawing, in words.
{
  const { html, useLayoutEffect, useRef } = STARK;
  const { clock, interval, isNumber, speedup, words } = STARK.format;

  function Tooltip({ hover, model }) {
    const box = useRef(null);
    useLayoutEffect(() => {
      if (!hover || !box.current) return;
      // Beside the pointer, and inside of the drawing.
      const { clientWidth: width, clientHeight: height } = box.current.parentElement;
      const left = Math.min(hover.x + 14, width - box.current.offsetWidth - 8);
      const top = hover.y + 16 + box.current.offsetHeight > height ? hover.y - box.current.offsetHeight - 10 : hover.y + 16;
      box.current.style.left = `${Math.max(4, left)}px`;
      box.current.style.top = `${Math.max(4, top)}px`;
    });
    if (!hover) return null;
    return html`<div class="tooltip" ref=${box} aria-hidden="true">${content(hover.point, model)}</div>`;
  }

  function content(point, model) {
    if (point.kind === "folded") return `${point.hidden} more under node ${point.parent}: click to unfold`;
    if (point.kind === "attempt") {
      const { number, stage, slot, since, parent } = point.attempt;
      const time = isNumber(since) ? clock(model.now() - since) : "";
      return html`<b>Attempt ${number}</b> from node ${parent}<br />${[words(stage), slot, time].filter(Boolean).join(" · ")}`;
    }
    const { node } = point;
    if (node.number === 0) return html`<b>Node 0</b>, the reference`;
    const range = interval(node.low, node.high);
    const figures = node.verdict === "correct" ? ` ${speedup(node.speedup, node.low)}${range ? ` (${range})` : ""}` : "";
    return html`<b>Node ${node.number}</b> ${words(node.verdict)}${figures}
      ${node.idea && html`<br /><span>${node.idea}</span>`}
      ${node.verdict !== "correct" && node.reason && html`<br /><span class="bad-text">${node.reason}</span>`}`;
  }

  STARK.Tooltip = Tooltip;
}
