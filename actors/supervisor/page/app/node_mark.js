"use strict";
// How a node looks: its shape is its state, its colour is its speed.  The canvas, the rows and the
// key draw the same paths, each about (0, 0) in a box of 12 by 12.
{
  const { html } = STARK;
  const { isNumber } = STARK.format;

  const CIRCLE = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z";
  const MARKS = {
    root: { path: "M-4.5-4.5h9v9h-9z", isFilled: true, name: "reference" },
    correct: { path: CIRCLE, isFilled: true, name: "correct" },
    best: { path: "M0-6.5L1.9-2.2L6.4-1.9L2.9 1.1L4.1 5.7L0 3.2L-4.1 5.7L-2.9 1.1L-6.4-1.9L-1.9-2.2z", isFilled: true, name: "best" },
    wrong: { path: "M-4-4L4 4M4-4L-4 4", name: "wrong" },
    compile_failed: { path: "M0-5L5 4H-5z", name: "compile failed" },
    crashed: { path: "M0-5.5L5.5 0L0 5.5L-5.5 0z", name: "crashed" },
    timed_out: { path: "M-4.5-5h9L-4.5 5h9z", name: "timed out" },
    out_of_memory: { path: "M-4.5-4.5h9v9h-9z", name: "out of memory" },
    rejected: { path: `${CIRCLE}M-3.2 3.2L3.2-3.2`, name: "rejected" },
    no_candidate: { path: "M-4.5 0h9", name: "no candidate" },
    under_way: { path: CIRCLE, isDashed: true, name: "under way" },
    folded: { path: "M-5-3.5h10v7h-10z", name: "folded" },
  };

  function markOf(node, bestNumber) {
    if (node.number === 0) return "root";
    if (node.number === bestNumber) return "best";
    return node.verdict in MARKS ? node.verdict : "wrong";
  }

  // A step of the speed scale, -3 (a quarter or slower) to 5; null for what was not timed.
  function speedStep(node, top) {
    if (node.number === 0 || node.verdict !== "correct" || !isNumber(node.speedup)) return null;
    const ratio = node.speedup;
    if (ratio < 0.98) return ratio < 0.5 ? -3 : ratio < 0.8 ? -2 : -1;
    if (ratio < 1.02) return 0;
    const share = Math.log(ratio) / Math.log(Math.max(top, 1.1));
    return Math.min(5, Math.max(1, Math.ceil(share * 5)));
  }

  function toneOf(node, top) {
    if (node.number === 0) return "root";
    const step = speedStep(node, top);
    if (step !== null) return `speed${step}`;
    return node.verdict === "correct" ? "speed0" : "bad";
  }

  function Mark({ mark, tone, label }) {
    const shape = MARKS[mark];
    const kind = shape.isFilled ? "filled" : shape.isDashed ? "dashed" : "hollow";
    const name = label ?? shape.name;
    return html`<svg class="mark ${kind} ${tone}" viewBox="-7 -7 14 14" role="img" aria-label=${name}>
      <path d=${shape.path} />
    </svg>`;
  }

  // The key under the drawing: every shape and the scale of colours, in words.
  function Key({ marks, top }) {
    const steps = [-2, 0, 1, 3, 5];
    const shown = marks.filter((mark) => mark in MARKS);
    return html`<div class="key" aria-label="Key of the drawing">
      ${shown.map((mark) => {
        const tone = mark === "root" ? "root" : ["correct", "best"].includes(mark) ? "speed4" : mark === "under_way" || mark === "folded" ? "soft" : "bad";
        return html`<span key=${mark}><${Mark} mark=${mark} tone=${tone} label="" />${MARKS[mark].name}</span>`;
      })}
      <span class="scale">slower ${steps.map((step) => html`<i key=${step} class="swatch speed${step}"></i>`)} faster, to ${STARK.format.speedup(top)}</span>
    </div>`;
  }

  STARK.nodeMark = { Key, MARKS, Mark, markOf, toneOf };
}
