"use strict";
// The tabs of a node.  Every text of a model or a candidate is a text node, never markup.
{
  const { html, useState } = STARK;
  const { clock, count, duration, hour, isNumber, seconds, usd, words } = STARK.format;

  const has = (name) => (details) => details[name] !== null && details[name] !== undefined && details[name] !== "";

  function VerdictPanel({ node, details, model, task }) {
    const verdict = details.verdict ?? {};
    const facts = Object.entries(verdict.details ?? {}).filter(([, value]) => value !== null && value !== "");
    const known = model.tasks.get(task);
    return html`<div class="verdict-panel">
      <div>${(verdict.lines ?? []).map((line, index) => html`<p key=${index} class=${index === 0 ? "first-line" : ""}>${line}</p>`)}
        ${listOf(verdict.notes).map((note, index) => html`<p key=${index} class="soft">${words(note)}</p>`)}</div>
      <${STARK.TimingStrip} timing=${details.timing} low=${node.low} high=${node.high} />
      ${!details.timing && node.verdict === "correct" && node.number > 0 && html`<p class="soft">The single measurements of this node were not kept; its interval is above.</p>`}
      ${node.number === 0 && known && html`<${Facts} rows=${[
        ["eager PyTorch", duration(known.eager_us)], ["torch.compile", duration(known.compile_us)],
        ["torch.compile, max-autotune", duration(known.max_autotune_us)], ["roofline floor", duration(known.floor_us)],
        ["device", known.device ?? STARK.format.DASH]]} />`}
      ${facts.length > 0 && html`<details><summary>All figures</summary><${Facts} rows=${facts.map(([name, value]) => [words(name), shown(value)])} /></details>`}
      ${details.first_look && html`<h3>First look</h3><${Facts} rows=${Object.entries(details.first_look).filter(([, value]) => value !== null).map(([name, value]) => [words(name), shown(value)])} />`}
    </div>`;
  }

  function listOf(value) {
    return Array.isArray(value) ? value : value ? [value] : [];
  }

  function shown(value) {
    if (value === null || value === undefined) return STARK.format.DASH;
    if (typeof value === "number") return Number.isInteger(value) ? count(value) : isNumber(value) ? String(Number(value.toPrecision(4))) : STARK.format.DASH;
    if (Array.isArray(value)) return value.map(shown).join(", ");
    if (typeof value === "object") return Object.entries(value).map(([name, part]) => `${words(name)} ${shown(part)}`).join(", ");
    return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  }

  function Facts({ rows }) {
    return html`<table class="fact-table"><tbody>
      ${rows.map(([name, value]) => html`<tr key=${name}><th scope="row">${name}</th><td>${value}</td></tr>`)}
    </tbody></table>`;
  }

  function SourcePanel({ details }) {
    return html`<div class="with-copy"><${STARK.CopyButton} text=${details.source} /></div>
      <${STARK.TextView} text=${details.source} label="Source" />`;
  }

  const AGAINST = { parent: "parent", best: "best", root: "reference", node: "another node" };

  function DiffPanel({ app, model, task, node, details, options }) {
    const best = model.tasks.get(task)?.best;
    const numbers = { parent: node.parent, best, root: 0 };
    const asked = options.against ?? "parent";
    const isOther = /^\d+$/.test(asked);
    const choice = isOther ? "node" : asked in numbers ? asked : "parent";
    const other = isOther ? Number(asked) : numbers[choice];
    const set = (against) => app.replace({ view: "node", task, number: node.number, tab: "diff", options: { against } });
    const stored = { parent: details.parent_source, best: details.best_source, root: details.root_source };
    return html`<div class="diff-panel">
      <div class="choices">
        <label>Against <select value=${choice} onChange=${(event) => set(event.target.value === "node" ? String(node.parent ?? 0) : event.target.value)}>
          ${Object.entries(AGAINST).map(([id, name]) => html`<option key=${id} value=${id} disabled=${id === "best" && best == null}>${name}${id !== "node" && numbers[id] != null ? ` (${numbers[id]})` : ""}</option>`)}
        </select></label>
        ${choice === "node" && html`<label>node <input type="number" min="0" value=${other} onChange=${(event) => set(event.target.value || "0")} /></label>`}
      </div>
      ${choice !== "node" && stored[choice] != null
        ? html`<${STARK.DiffView} before=${stored[choice]} after=${details.source ?? ""} label="Difference" />`
        : other == null
          ? html`<p class="empty">${choice === "best" ? "There is no best node yet." : "The reference has no parent."}</p>`
          : html`<${OtherDiff} app=${app} task=${task} other=${other} after=${details.source ?? ""} />`}
    </div>`;
  }

  function OtherDiff({ app, task, other, after }) {
    const { details, error } = STARK.useNodeDetails(app, task, other);
    if (error) return html`<p class="bad-text">Node ${other} could not be read: ${error.message}</p>`;
    if (!details) return html`<p class="soft" role="status">Reading …</p>`;
    return html`<${STARK.DiffView} before=${details.source ?? ""} after=${after} label=${`Difference against node ${other}`} />`;
  }

  function PlanPanel({ details }) {
    const { advice, anchors, text } = details.plan ?? {};
    return html`${advice && html`<p class="advice">${advice}</p>`}
      ${text && html`<h3>The source with the plan's anchors</h3>
        ${anchors?.length > 0 && html`<p class="soft">Anchored lines: ${anchors.map((span) => listOf(span).join("–")).join(", ")}</p>`}
        <${STARK.TextView} text=${text} label="Source with anchors" />`}`;
  }

  function CallsPanel({ details }) {
    const edits = details.edits ?? [];
    return html`${edits.length > 0 && html`<p>The code was answered as edits of node ${details.summary?.parent ?? 0}'s source; the tab Source has the file that they make.</p>
      <ul>${edits.map((edit, index) => html`<li key=${index}>${edit}</li>`)}</ul>`}${details.calls.map((call, index) => html`<${Call} key=${index} call=${call} isOpen=${details.calls.length === 1 || index === details.calls.length - 1} />`)}`;
  }

  function Call({ call, isOpen }) {
    const [part, setPart] = useState("reply");
    const tokens = `${count(call.input_tokens)} tokens in${call.cached_tokens ? ` (${count(call.cached_tokens)} cached)` : ""}, ${count(call.output_tokens)} out`;
    return html`<details class="call" open=${isOpen}>
      <summary><b>${words(call.role)}</b> · ${call.model} <span class="soft">· ${tokens} · ${usd(call.usd)} · ${seconds(call.seconds)}${call.stop ? ` · ${words(call.stop)}` : ""}${isNumber(call.at) ? ` · ${hour(call.at)}` : ""}</span></summary>
      <div class="choices" role="group" aria-label="Part of the call">
        ${["reply", "request"].map((name) => html`<button type="button" key=${name} aria-pressed=${part === name ? "true" : "false"} onClick=${() => setPart(name)}>${name === "reply" ? "Reply" : "Prompt"}</button>`)}
        <${STARK.CopyButton} text=${call[part]} />
      </div>
      ${call[part] == null
        ? html`<p class="empty">This text was left out for its size; run.db has it.</p>`
        : html`<${STARK.TextView} text=${call[part]} label=${part === "reply" ? "Reply" : "Prompt"} hasNumbers=${false} isWrapped=${true} />`}
    </details>`;
  }

  function LogPanel({ details }) {
    return html`<div class="with-copy"><${STARK.CopyButton} text=${details.log} /></div>
      <${STARK.TextView} text=${details.log} label="Log" hasNumbers=${false} />`;
  }

  function ProfilePanel({ node, details, model, task }) {
    const known = model.tasks.get(task);
    const floor = known?.floor_us;
    const rows = Object.entries(details.profile ?? {}).map(([name, value]) => [words(name), shown(value)]);
    const share = isNumber(floor) && isNumber(node.us) && node.us > 0 ? floor / node.us : null;
    return html`${isNumber(floor) && html`<p>The roofline floor of this task is <b>${duration(floor)}</b>: no honest call on this device can be faster.
        ${share !== null && ` This node needs ${duration(node.us)}: ${Math.round(share * 100)} % of the floor's speed.`}</p>
        ${share !== null && html`<progress max="1" value=${share} aria-label="Share of the floor's speed"></progress>`}`}
      ${rows.length ? html`<${Facts} rows=${rows} />` : html`<p class="empty">This node has no profile.</p>`}`;
  }

  function CostPanel({ node, details, model }) {
    const stages = details.stages ?? [];
    const calls = details.calls ?? [];
    const start = Math.min(...stages.map((stage) => stage.granted).filter(isNumber));
    return html`<${Facts} rows=${[
        ["price of the model calls", usd(node.usd)], ["tokens", count(node.tokens)],
        ["build", seconds(node.build_s)], ["check", seconds(node.check_s)], ["timing", seconds(node.timing_s)]]} />
      ${stages.length > 0 && html`<h3>Stages</h3><div class="wide"><table class="list">
        <thead><tr><th>stage</th><th>worker</th><th class="number">began</th><th class="number">took</th><th>outcome</th></tr></thead>
        <tbody>${stages.map((stage, index) => html`<tr key=${index}><td>${words(stage.stage)}</td><td>${stage.slot}</td>
          <td class="number">+${clock(stage.granted - start)}</td>
          <td class="number">${seconds((stage.ended ?? model.now()) - stage.granted)}</td><td>${stage.outcome ? words(stage.outcome) : "held now"}</td></tr>`)}</tbody>
      </table></div>`}
      ${calls.length > 0 && html`<h3>Calls</h3><div class="wide"><table class="list">
        <thead><tr><th>role</th><th>model</th><th class="number">in</th><th class="number">cached</th><th class="number">out</th><th class="number">price</th><th class="number">took</th></tr></thead>
        <tbody>${calls.map((call, index) => html`<tr key=${index}><td>${words(call.role)}</td><td>${call.model}</td><td class="number">${count(call.input_tokens)}</td>
          <td class="number">${count(call.cached_tokens)}</td><td class="number">${count(call.output_tokens)}</td><td class="number">${usd(call.usd)}</td><td class="number">${seconds(call.seconds)}</td></tr>`)}</tbody>
      </table></div>`}`;
  }

  STARK.nodeTabs = [
    { id: "verdict", name: "Verdict", Panel: VerdictPanel, isThere: () => true },
    { id: "source", name: "Source", Panel: SourcePanel, isThere: has("source") },
    { id: "diff", name: "Diff", Panel: DiffPanel, isThere: (details) => has("source")(details) && details.summary?.number !== 0 },
    { id: "plan", name: "Plan", Panel: PlanPanel, isThere: (details) => Boolean(details.plan?.advice || details.plan?.text) },
    { id: "calls", name: "Prompt & reply", Panel: CallsPanel, isThere: (details) => details.calls?.length > 0 },
    { id: "log", name: "Log", Panel: LogPanel, isThere: has("log") },
    { id: "profile", name: "Profile & floor", Panel: ProfilePanel, isThere: (details) => Object.keys(details.profile ?? {}).length > 0 },
    { id: "cost", name: "Cost & stages", Panel: CostPanel, isThere: () => true },
  ];
  STARK.Facts = Facts;
}
