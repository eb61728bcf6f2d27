"use strict";
// Best so far against attempts, minutes or dollars: of one task, of all tasks, of several runs.
{
  const { html, useState } = STARK;
  const { clock, count, interval, isNumber, speedup, usd, words } = STARK.format;

  function BestView({ app, model, task }) {
    const [axis, setAxis] = useState("attempts");
    const [isAllTasks, setAllTasks] = useState(false);
    const [hidden, setHidden] = useState(() => new Set());
    const [picked, setPicked] = useState([]);
    const others = STARK.useOtherRuns(app);
    const curves = curvesOf(app, model, task, isAllTasks, others);
    const shown = curves.filter((curve) => !hidden.has(curve.name));
    const hasPrices = curves.some((curve) => (curve.steps.at(-1)?.usd ?? 0) > 0);
    const axes = Object.entries(STARK.curveAxes).filter(([name]) => name !== "usd" || hasPrices);
    const steps = model.bestSoFar(task).filter((step) => step.isBetter);
    const toggle = (name) => {
      const next = new Set(hidden);
      if (!next.delete(name)) next.add(name);
      setHidden(next);
    };
    if (!curves.some((curve) => curve.steps.length)) return html`<div class="panel empty"><h2>No attempt has ended yet</h2><p>The curve begins with the first verdict.</p></div>`;
    const summary = shown.map((curve) => `${curve.name}: ${speedup(curve.steps.at(-1)?.best)} after ${curve.steps.length} attempts`).join("; ");
    return html`<section class="panel best-view" aria-label="Best so far">
      <div class="choices">
        <span role="group" aria-label="Against" class="segments">${axes.map(([name, known]) => html`<button type="button" key=${name} aria-pressed=${axis === name ? "true" : "false"} onClick=${() => setAxis(name)}>${known.name}</button>`)}</span>
        ${model.tasks.size > 1 && html`<label><input type="checkbox" checked=${isAllTasks} onChange=${() => setAllTasks(!isAllTasks)} /> all tasks</label>`}
      </div>
      <${STARK.CurveChart} curves=${shown} axis=${axis} onPick=${setPicked} label=${`Best speed-up so far. ${summary}`} />
      <${Legend} curves=${curves} hidden=${hidden} onToggle=${toggle} />
      <p class="picked soft" aria-hidden="true">${picked.length ? picked.map(pickedText).join(" · ") : "The line rises with an attempt whose whole interval is above 1. Rings: first looks of correct attempts; crosses at the foot: failed ones; dashed: the reference; a full dot: what was confirmed."}</p>
      <h3>Improvements</h3>
      ${steps.length === 0 ? html`<p class="empty">No attempt is faster than the reference yet.</p>` : html`<div class="wide"><table class="list">
        <thead><tr><th class="number">attempt</th><th class="number">speed-up</th><th class="number hide-narrow">interval</th><th class="number hide-narrow">after</th>${hasPrices && html`<th class="number hide-narrow">for</th>`}<th>idea</th></tr></thead>
        <tbody>${steps.slice().reverse().map((step) => html`<tr key=${step.node.number}>
          <td class="number"><${STARK.NodeLink} app=${app} task=${task} number=${step.node.number} /></td>
          <td class="number"><b>${speedup(step.speedup)}</b>${step.node.confirmed && html`<br /><span class="soft">confirmed ${speedup(step.node.speedup, step.node.low)}</span>`}</td>
          <td class="number soft hide-narrow">${interval(step.node.low, step.node.high)}</td>
          <td class="number hide-narrow">${isNumber(step.minutes) ? clock(step.minutes * 60) : ""}</td>
          ${hasPrices && html`<td class="number hide-narrow">${usd(step.usd)}</td>`}
          <td>${step.node.idea}</td></tr>`)}</tbody>
      </table></div>`}
    </section>`;
  }

  function pickedText({ name, step }) {
    const own = step.node.verdict === "correct" ? speedup(step.speedup) : words(step.node.verdict);
    return `${name}, attempt ${count(step.node.number)}: ${own}, best so far ${speedup(step.best)}`;
  }

  // The task's own curve first, then the run's other tasks, then the same task in the other runs.
  function curvesOf(app, model, task, isAllTasks, others) {
    const curve = (name, known, of) => ({ name, steps: known.bestSoFar(of), end: known.finalSpeedup(of), version: known.treeVersion });
    const hasRuns = others.length > 0;
    const own = hasRuns ? `${app.runName(app.runId)}` : task;
    const curves = [curve(own, model, task)];
    if (isAllTasks) {
      for (const name of model.tasks.keys()) if (name !== task) curves.push(curve(name, model, name));
    }
    for (const other of others) {
      const same = other.model.tasks.has(task) ? task : other.model.tasks.keys().next().value;
      if (same) curves.push(curve(`${app.runName(other.id)}${same === task ? "" : ` (${same})`}`, other.model, same));
    }
    return curves;
  }

  function Legend({ curves, hidden, onToggle }) {
    if (curves.length < 2) return null;
    return html`<div class="legend">${curves.map((curve, index) => html`<label key=${curve.name}>
      <input type="checkbox" checked=${!hidden.has(curve.name)} onChange=${() => onToggle(curve.name)} />
      <svg class=${`sample series${index % 6}`} viewBox="0 0 30 8" aria-hidden="true"><line x1="0" x2="30" y1="4" y2="4" stroke-dasharray=${STARK.curveDashes[index % 6].join(" ")} /></svg>
      ${curve.name}</label>`)}</div>`;
  }

  STARK.BestView = BestView;
}
