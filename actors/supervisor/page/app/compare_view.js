"use strict";
// Runs at equal budget, and two nodes line by line.
{
  const { html } = STARK;
  const { clock, count, duration, interval, isNumber, speedup, usd, words } = STARK.format;

  function CompareView({ app, model, task, options }) {
    const others = STARK.useOtherRuns(app);
    return html`<div class="compare-view">
      <section class="panel" aria-labelledby="runs-title"><h2 id="runs-title">Runs at equal budget</h2>
        <${Runs} app=${app} model=${model} task=${task} others=${others} /></section>
      <section class="panel" aria-labelledby="nodes-title"><h2 id="nodes-title">Two nodes</h2>
        <${Nodes} app=${app} model=${model} task=${task} options=${options} /></section>
    </div>`;
  }

  // What each run had reached when it had used as much as the run that used least.
  function Runs({ app, model, task, others }) {
    const rows = [{ id: app.runId, model }, ...others].map((run) => {
      const name = run.model.tasks.has(task) ? task : null;
      return { ...run, steps: name ? run.model.bestSoFar(name) : [] };
    });
    const known = rows.filter((row) => row.steps.length);
    if (!known.length) return html`<p class="empty">No attempt of this task has ended yet.</p>`;
    const least = (axis) => Math.min(...known.map((row) => row.steps.at(-1)[axis] ?? Infinity));
    const budgets = { attempts: least("attempts"), minutes: least("minutes"), usd: least("usd") };
    const hasPrices = budgets.usd > 0;
    const columns = [
      [`after ${count(budgets.attempts)} attempts`, (row) => speedup(at(row, "attempts", budgets))],
      [`after ${clock(budgets.minutes * 60)}`, (row) => speedup(at(row, "minutes", budgets))],
      ...(hasPrices ? [[`for ${usd(budgets.usd)}`, (row) => speedup(at(row, "usd", budgets))]] : []),
      ["now", (row) => html`<b>${speedup(row.model.finalSpeedup(task) ?? row.steps.at(-1)?.best)}</b>`],
      ["attempts", (row) => count(row.steps.length)],
      ["cost", (row) => usd(row.model.run?.usd)],
    ];
    return html`<div class="wide"><table class="list cards">
        <thead><tr><th>run</th>${columns.map(([name]) => html`<th key=${name} class="number">${name}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr key=${row.id}>
          <td data-label="run"><span><b>${app.runName(row.id)}</b> ${row.model.run?.model && html`<span class="soft">${row.model.run.model}</span>`}</span></td>
          ${columns.map(([name, text]) => html`<td key=${name} data-label=${name} class="number">${text(row)}</td>`)}</tr>`)}</tbody>
      </table></div>
      <p class="soft">Best speed-up of ${task} so far, by first looks; “now” is the confirmed figure where there is one. The columns stop every run at the budget of the shortest.
        ${others.length === 0 && (app.source.kind === "live" ? " Start watch with more run folders to compare them." : " This file holds one run.")}</p>`;
  }

  function at(row, axis, budgets) {
    const before = row.steps.filter((step) => (step[axis] ?? 0) <= budgets[axis]);
    return before.at(-1)?.best;
  }

  function Nodes({ app, model, task, options }) {
    const best = model.best(task)?.number;
    const [left, right] = [numberOf(options.a, 0), numberOf(options.b, best ?? model.finished(task).at(-1)?.number ?? 0)];
    const set = (change) => app.replace({ view: "compare", task, options: { a: left, b: right, ...change } });
    const chosen = [left, right].map((number) => model.node(task, number));
    return html`<form class="choices" onSubmit=${(event) => event.preventDefault()}>
        <label>Node <input type="number" min="0" value=${left} onChange=${(event) => set({ a: event.target.value })} /></label>
        <label>with node <input type="number" min="0" value=${right} onChange=${(event) => set({ b: event.target.value })} /></label>
        <button type="button" onClick=${() => set({ a: right, b: left })}>Swap</button>
      </form>
      ${chosen.every(Boolean)
        ? html`<${Figures} app=${app} task=${task} nodes=${chosen} /><${Difference} app=${app} task=${task} left=${left} right=${right} />`
        : html`<p class="empty">There is no node ${chosen[0] ? right : left} in ${task}.</p>`}`;
  }

  function numberOf(text, otherwise) {
    return /^\d+$/.test(String(text ?? "")) ? Number(text) : otherwise;
  }

  function Figures({ app, task, nodes }) {
    const rows = [
      ["verdict", (node) => (node.number === 0 ? "the reference" : words(node.verdict))],
      ["speed-up", (node) => (node.number === 0 ? "1.00×" : speedup(node.speedup, node.low))],
      ["95 % interval", (node) => interval(node.low, node.high) || STARK.format.DASH],
      ["a call", (node) => duration(node.us)],
      ["cost", (node) => usd(node.usd)],
      ["idea", (node) => node.idea || STARK.format.DASH],
    ];
    return html`<div class="wide"><table class="list pair"><thead><tr><th></th>${nodes.map((node, index) => html`<th key=${index}><${STARK.NodeLink} app=${app} task=${task} number=${node.number}>node ${node.number}<//></th>`)}</tr></thead>
      <tbody>${rows.map(([name, text]) => html`<tr key=${name}><th scope="row">${name}</th>${nodes.map((node, index) => html`<td key=${index}>${text(node)}</td>`)}</tr>`)}</tbody></table></div>`;
  }

  function Difference({ app, task, left, right }) {
    const [before, after] = [STARK.useNodeDetails(app, task, left), STARK.useNodeDetails(app, task, right)];
    const error = before.error ?? after.error;
    if (error) return html`<p class="bad-text">The sources could not be read: ${error.message}</p>`;
    if (!before.details || !after.details) return html`<p class="soft" role="status">Reading …</p>`;
    return html`<${STARK.DiffView} before=${before.details.source ?? ""} after=${after.details.source ?? ""} label=${`Difference of node ${left} and node ${right}`} />`;
  }

  STARK.CompareView = CompareView;
}
