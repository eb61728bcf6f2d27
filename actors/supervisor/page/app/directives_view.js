"use strict";
// What persons asked of the run, and what became of it; with --steer also the forms.
{
  const { html, useState } = STARK;
  const { hour, isNumber, seconds, words } = STARK.format;

  function DirectivesView({ app, model, task }) {
    const rows = [...model.directives.values()].sort((a, b) => (b.wanted_at ?? 0) - (a.wanted_at ?? 0));
    return html`<div class="directives-view">
      <${STARK.Questions} app=${app} model=${model} />
      ${app.canSteer && html`<${RunActions} app=${app} model=${model} />`}
      <section class="panel" aria-labelledby="directives-title"><h2 id="directives-title">Directives</h2>
        ${rows.length ? html`<${Rows} app=${app} rows=${rows} task=${task} />` : html`<p class="empty">No person has steered this run.</p>`}
        ${!app.canSteer && html`<p class="soft">${app.source.kind === "live" ? "This page only reads. Start watch with --steer to pause the run, pin a node or give advice here." : "This file only shows the run."}</p>`}
      </section>
    </div>`;
  }

  function RunActions({ app, model }) {
    const [verb, setVerb] = useState("");
    const [said, say] = useState("");
    const isHidden = { pause: model.run.paused, go: !model.run.paused };
    const shown = Object.entries(STARK.verbs).filter(([name, known]) => known.of === "run" && !isHidden[name]);
    const choose = (name) => {
      setVerb(verb === name ? "" : name);
      say("");
    };
    return html`<section class="panel actions" aria-label="Steer the run">
      <h2>Steer the run</h2>
      <div class="choices" role="group">${shown.map(([name, known]) => html`<button type="button" key=${name} aria-pressed=${verb === name ? "true" : "false"} onClick=${() => choose(name)}>${known.name}</button>`)}</div>
      ${verb && html`<${STARK.DirectiveForm} key=${verb} app=${app} verb=${verb}
        onDone=${(text) => {
          setVerb("");
          say(text);
        }} />`}
      <p role="status" class="said">${said}</p>
      <p class="soft">To pin, boost, prune, advise, inject or reject, open a node.</p>
    </section>`;
  }

  function Rows({ app, rows, task }) {
    return html`<div class="wide"><table class="list cards">
      <thead><tr><th>wanted</th><th>verb</th><th>of</th><th>arguments</th><th>by</th><th>state</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.key}>
        <td data-label="wanted">${hour(row.wanted_at)}</td>
        <td data-label="verb"><b>${words(row.verb)}</b></td>
        <td data-label="of">${isNumber(row.node) ? html`<${STARK.NodeLink} app=${app} task=${row.task || task} number=${row.node}>node ${row.node}<//>` : row.task || "the run"}</td>
        <td data-label="arguments" class="clamp-cell">${argumentText(row.arguments)}</td>
        <td data-label="by">${row.by || STARK.format.DASH}</td>
        <td data-label="state"><span class=${`state ${row.state}`}>${words(row.state)}</span>${isNumber(row.applied_at) && isNumber(row.wanted_at) ? html` <span class="soft">after ${seconds(Math.max(0, row.applied_at - row.wanted_at))}</span>` : ""}${row.reason ? html`<br /><span class=${row.state === "refused" ? "bad-text" : "soft"}>${row.reason}</span>` : ""}</td></tr>`)}</tbody>
    </table></div>`;
  }

  function argumentText(value) {
    const known = typeof value === "string" ? parsed(value) : value;
    if (known === null || typeof known !== "object") return String(known ?? "");
    return Object.entries(known).filter(([, part]) => part !== null && part !== "").map(([name, part]) => `${words(name)}: ${part}`).join(", ");
  }

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }

  STARK.DirectivesView = DirectivesView;
}
