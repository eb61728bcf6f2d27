"use strict";
// One node: what it is, where it stands in the tree, and its tabs.
{
  const { html, useRef } = STARK;
  const { Mark, markOf, toneOf } = STARK.nodeMark;
  const { clock, duration, hour, interval, isNumber, speedup, usd, words } = STARK.format;

  function NodeView({ app, model, task, number, tab, options }) {
    const attempt = model.underWay(task).find((known) => known.number === number);
    const node = model.node(task, number) ?? (attempt && number !== 0 ? underWay(attempt) : undefined);
    const { details, error } = STARK.useNodeDetails(app, task, node ? number : null, attempt?.stage);
    STARK.useSeconds(Boolean(attempt));
    if (!node) return html`<${Missing} app=${app} task=${task} number=${number} attempt=${attempt} />`;
    const tabs = STARK.nodeTabs.filter((known) => !details || known.isThere(details));
    const current = tabs.find((known) => known.id === tab) ?? tabs[0];
    const goTab = (id) => app.replace({ view: "node", task, number, tab: id, options });
    return html`<article class="node-view" aria-label=${`Node ${number}`}>
      <${NodeHeader} app=${app} model=${model} task=${task} node=${node} />
      ${app.canSteer && node.verdict && html`<${STARK.NodeActions} app=${app} task=${task} node=${node} />`}
      <${TabList} tabs=${tabs} current=${current} onGo=${goTab} />
      <div class="panel tab-panel" role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${current.id}`}>
        ${error
          ? html`<p class="bad-text">This node's details could not be read: ${error.message}</p>`
          : details
            ? html`<${current.Panel} app=${app} model=${model} task=${task} node=${node} details=${details} options=${options} />`
            : html`<p class="soft" role="status">Reading …</p>`}
      </div>
    </article>`;
  }

  function NodeHeader({ app, model, task, node }) {
    const best = model.tasks.get(task)?.best;
    const range = interval(node.low, node.high);
    const isRoot = node.number === 0;
    const attempt = model.underWay(task).find((known) => known.number === node.number);
    return html`<header class="node-header">
      <${Steps} app=${app} model=${model} task=${task} node=${node} />
      <h2><${Mark} mark=${node.verdict ? markOf(node, best) : "under_way"} tone=${node.verdict ? toneOf(node, STARK.topSpeed(model, task)) : "accent"} />
        ${isRoot ? "Node 0: the reference" : html`Attempt ${node.number}: ${node.verdict ? words(node.verdict) : "under way"}`}
        ${!isRoot && node.verdict === "correct" && html` <span class="figure">${speedup(node.speedup, node.low)}</span>`}
        ${range && !isRoot && node.verdict === "correct" && html` <span class="soft small">95 % interval ${range}${node.confirmed ? ", confirmed" : ", first look"}</span>`}</h2>
      ${attempt && html`<p class="soft">${words(attempt.stage)}${attempt.slot ? ` on ${attempt.slot}` : ", waits for a worker"}${isNumber(attempt.since) ? ` for ${clock(model.now() - attempt.since)}` : ""}</p>`}
      ${node.idea && html`<p class="node-idea">${node.idea}</p>`}
      ${node.verdict !== "correct" && node.reason && html`<p class="bad-text node-reason">${node.reason}</p>`}
      <dl class="facts">
        ${isNumber(node.us) && html`<div><dt>a call</dt><dd>${duration(node.us)}</dd></div>`}
        ${node.kind && !isRoot && html`<div><dt>kind</dt><dd>${words(node.kind)}</dd></div>`}
        ${isNumber(node.usd) && html`<div><dt>cost</dt><dd>${usd(node.usd)}</dd></div>`}
        ${isNumber(node.at) && html`<div><dt>ended</dt><dd>${hour(node.at)}</dd></div>`}
        ${STARK.nodeTags(node).filter((tag) => tag !== "confirmed").map((tag) => html`<div key=${tag}><dt>mark</dt><dd>${tag}</dd></div>`)}
      </dl>
    </header>`;
  }

  // The way from the root to the node and its children, each a link.
  function Steps({ app, model, task, node }) {
    const path = model.path(task, node.number);
    const shown = path.length > 9 ? [path[0], null, ...path.slice(-6)] : path;
    const children = [...model.children(task, node.number)].sort((a, b) => a.number - b.number);
    const finished = model.finished(task).map((known) => known.number).sort((a, b) => a - b);
    const [before, after] = [finished.findLast((known) => known < node.number), finished.find((known) => known > node.number)];
    const link = (number, text) => html`<${STARK.NodeLink} app=${app} task=${task} number=${number}>${text ?? number}<//>`;
    return html`<nav class="steps" aria-label="Place in the tree">
      <a href=${app.href({ view: "tree", task })}>Tree</a>
      <span class="soft" aria-hidden="true">/</span>
      ${!path.length && isNumber(node.parent) && html`<span>from ${link(node.parent)}</span>`}
      ${shown.map((number) => html`<span key=${number ?? "gap"}>${number === null ? "…" : number === node.number ? html`<b aria-current="page">${number}</b>` : link(number)} <span class="soft" aria-hidden="true">${number === node.number ? "" : "›"}</span></span>`)}
      ${children.length > 0 && html`<span class="soft">children:</span> ${children.slice(0, 12).map((child) => html`<span key=${child.number}>${link(child.number)} </span>`)}${children.length > 12 ? "…" : ""}`}
      <span class="sides">
        ${before !== undefined && link(before, `‹ ${before}`)}
        ${after !== undefined && link(after, `${after} ›`)}
      </span>
    </nav>`;
  }

  function TabList({ tabs, current, onGo }) {
    const list = useRef(null);
    const onKeyDown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const index = (tabs.indexOf(current) + step + tabs.length) % tabs.length;
      onGo(tabs[index].id);
      list.current.children[index].focus();
    };
    return html`<div class="tabs" role="tablist" ref=${list} onKeyDown=${onKeyDown}>
      ${tabs.map((tab) => html`<button type="button" role="tab" key=${tab.id} id=${`tab-${tab.id}`} aria-controls="tab-panel"
        aria-selected=${tab === current ? "true" : "false"} tabindex=${tab === current ? 0 : -1}
        onClick=${() => onGo(tab.id)}>${tab.name}</button>`)}
    </div>`;
  }

  function Missing({ app, task, number, attempt }) {
    return html`<div class="panel empty">
      <h2>${attempt ? "The reference is being measured" : `There is no node ${number ?? ""} in this task`}</h2>
      <p><a href=${app.href({ view: "tree", task })}>To the tree</a></p>
    </div>`;
  }

  // An attempt under way has a page, too: its plan and its calls, as far as they are.
  function underWay(attempt) {
    return { ...attempt, verdict: null, idea: "", reason: "" };
  }

  STARK.NodeView = NodeView;
}
