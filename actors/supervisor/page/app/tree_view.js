"use strict";
// The tree: its drawing beside its rows, and what is selected in both.
{
  const { html, useState } = STARK;
  const { Key, Mark, markOf, toneOf } = STARK.nodeMark;
  const { clock, duration, interval, isNumber, speedup, words } = STARK.format;
  const memories = new Map(); // where the reader was in each task's tree: zoom, folds, filters

  function memoryOf(run, task) {
    const key = `${run} ${task}`;
    if (!memories.has(key)) {
      memories.set(key, {
        x: 0, y: 0, scale: 1, stepX: 120, stepY: 24, isMoved: false,
        unfolded: new Set(), folded: new Set(),
        filter: { search: "", verdict: "", kind: "", order: "tree" }, scroll: { top: 0 },
        selected: null,
      });
    }
    return memories.get(key);
  }

  function TreeView({ app, model, task }) {
    const [, redraw] = useState(0);
    const view = memoryOf(app.runId, task);
    view.changed = () => redraw((count) => count + 1);
    const select = (number) => {
      view.selected = number;
      view.changed();
    };
    const open = (number) => app.go({ view: "node", task, number });
    const shared = { model, task, view, selected: view.selected, onOpen: open };
    if (!(model.numbers.get(task) ?? []).length) return html`<${EmptyTree} model=${model} task=${task} />`;
    const marks = marksIn(model, task);
    return html`<div class="tree-view">
      <section class="panel" aria-label="Drawing of the tree">
        <${STARK.TreeCanvas} ...${shared} onSelect=${select} key=${task} />
        <${Key} marks=${marks} top=${STARK.topSpeed(model, task)} />
      </section>
      <section class="panel rows-panel" aria-label="List of the attempts">
        <${STARK.RunningNow} model=${model} task=${task} />
        <${STARK.TreeRows} ...${shared} onSelect=${select} key=${task} />
        <${Selected} ...${shared} />
      </section>
    </div>`;
  }

  function marksIn(model, task) {
    return model.remembered(`marks ${task}`, () => {
      const best = model.tasks.get(task)?.best;
      const found = new Set((model.numbers.get(task) ?? []).map((node) => markOf(node, best)));
      if (model.underWay(task).length) found.add("under_way");
      return Object.keys(STARK.nodeMark.MARKS).filter((mark) => found.has(mark));
    });
  }

  // A few facts of the selected node, and the way to all of them.
  function Selected({ model, task, selected, onOpen }) {
    const node = selected === null ? undefined : model.node(task, selected);
    if (!node) return html`<p class="selected soft" aria-live="polite">Select a node for its idea and verdict; Enter or a double click opens it.</p>`;
    const range = interval(node.low, node.high);
    return html`<div class="selected" aria-live="polite">
      <div class="selected-text">
        <p><${Mark} mark=${markOf(node, model.tasks.get(task)?.best)} tone=${toneOf(node, STARK.topSpeed(model, task))} />
          <b>Node ${node.number}</b>${node.number ? ` ${words(node.verdict)}` : " the reference"}
          ${node.number > 0 && node.verdict === "correct" && html` <b>${speedup(node.speedup, node.low)}</b>${range && ` (${range})`}`}
          ${isNumber(node.us) && ` · ${duration(node.us)} a call`}
          ${node.number > 0 && html`<span class="soft"> · from ${node.parent}</span>`}</p>
        ${node.idea && html`<p class="clamp">${node.idea}</p>`}
        ${node.verdict !== "correct" && node.reason && html`<p class="bad-text clamp">${node.reason}</p>`}
      </div>
      <button type="button" class="primary" onClick=${() => onOpen(node.number)}>Open</button>
    </div>`;
  }

  function RunningNow({ model, task }) {
    STARK.useSeconds(model.attempts.length > 0);
    const attempts = model.underWay(task);
    if (!attempts.length) return null;
    return html`<ul class="running-now" aria-label="Running now">
      ${attempts.map((attempt) => html`<li key=${attempt.number}>
        <${Mark} mark="under_way" tone="accent" label="under way" /><b>${attempt.number}</b>
        <span>${words(attempt.stage)}${attempt.slot ? ` · ${attempt.slot}` : " · waits for a worker"}</span>
        ${attempt.kind !== "confirm" && html`<span class="soft hide-narrow">from ${attempt.parent}</span>`}
        <span class="seconds">${isNumber(attempt.since) ? clock(model.now() - attempt.since) : ""}</span>
      </li>`)}
    </ul>`;
  }

  function EmptyTree({ model, task }) {
    const known = model.tasks.get(task);
    const measuring = model.underWay(task);
    return html`<div class="panel empty">
      <h2>No node yet</h2>
      ${known?.problem
        ? html`<p class="bad-text">${known.problem}</p>`
        : html`<p>The reference is measured first; it becomes node 0, the root of the tree.</p>`}
      ${measuring.length > 0 && html`<${RunningNow} model=${model} task=${task} />`}
    </div>`;
  }

  STARK.TreeView = TreeView;
  STARK.RunningNow = RunningNow;
  STARK.treeMemory = memoryOf;
}
