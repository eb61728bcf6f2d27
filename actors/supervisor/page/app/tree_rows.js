"use strict";
// The tree as rows: search, filters, orders.  What the drawing shows, for reading and for a keyboard.
{
  const { html, useMemo } = STARK;
  const { Mark, markOf, toneOf } = STARK.nodeMark;
  const { count, duration, interval, isNumber, speedup, usd, words } = STARK.format;
  const ROW_HEIGHT = 46;
  const MOST_INDENT = 12;

  const ORDERS = {
    tree: "tree order", fastest: "fastest first", newest: "newest first", dearest: "dearest first",
  };

  function TreeRows({ model, task, selected, onSelect, onOpen, view }) {
    const { search, verdict, kind, order } = view.filter;
    const set = (change) => {
      Object.assign(view.filter, change);
      view.changed();
    };
    const counts = model.verdictCounts(task);
    const kinds = useMemo(() => [...new Set(model.finished(task).map((node) => node.kind).filter(Boolean))].sort(), [model.treeVersion, task]);
    const rows = useMemo(() => chosenRows(model, task, view.filter), [model.treeVersion, task, search, verdict, kind, order]);
    const active = useMemo(() => rows.findIndex((row) => row.node.number === selected), [rows, selected]);
    const best = model.tasks.get(task)?.best;
    const top = STARK.topSpeed(model, task);
    const total = (model.numbers.get(task) ?? []).length;
    const cells = (row) => html`<${Cells} row=${row} best=${best} top=${top} isIndented=${order === "tree" && !isFiltered(view.filter)} />`;
    return html`<div class="rows">
      <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
        <input type="search" placeholder="Search" title="Number, idea, reason, verdict" aria-label="Search the attempts" value=${search}
          onInput=${(event) => set({ search: event.target.value })} />
        <select aria-label="Verdict" value=${verdict} onChange=${(event) => set({ verdict: event.target.value })}>
          <option value="">all verdicts</option>
          <option value="faster">faster</option>
          <option value="failed">failed</option>
          ${[...counts].map(([word, number]) => html`<option key=${word} value=${word}>${words(word)} (${count(number)})</option>`)}
        </select>
        ${kinds.length > 1 && html`<select aria-label="Kind" value=${kind} onChange=${(event) => set({ kind: event.target.value })}>
          <option value="">all kinds</option>
          ${kinds.map((name) => html`<option key=${name} value=${name}>${words(name)}</option>`)}
        </select>`}
        <select aria-label="Order" value=${order} onChange=${(event) => set({ order: event.target.value })}>
          ${Object.entries(ORDERS).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}
        </select>
        <span class="soft count" role="status">${rows.length === total ? count(total) : `${count(rows.length)} of ${count(total)}`}</span>
      </form>
      ${rows.length
        ? html`<${STARK.VirtualRows} rows=${rows} rowHeight=${ROW_HEIGHT} cells=${cells} keyOf=${(row) => row.node.number}
            classOf=${(row) => (row.node.pruned ? "is-pruned" : "")} active=${active} memory=${view.scroll}
            onActive=${(row) => onSelect(row.node.number)} onOpen=${(row) => onOpen(row.node.number)}
            label="Attempts. Arrow keys move, Enter opens." />`
        : html`<p class="empty">${total ? "No attempt matches." : "No attempt has ended yet."}
            ${total > 0 && html` <button type="button" class="link" onClick=${() => set({ search: "", verdict: "", kind: "" })}>Show all</button>`}</p>`}
    </div>`;
  }

  function isFiltered({ search, verdict, kind }) {
    return Boolean(search || verdict || kind);
  }

  function chosenRows(model, task, { search, verdict, kind, order }) {
    const wanted = search.trim().toLowerCase();
    const rows = model.treeOrder(task).filter(({ node }) => {
      if (verdict === "faster" && !(node.verdict === "correct" && node.low > 1)) return false;
      if (verdict === "failed" && (node.verdict === "correct" || node.number === 0)) return false;
      if (verdict && verdict !== "faster" && verdict !== "failed" && (node.verdict !== verdict || node.number === 0)) return false;
      if (kind && node.kind !== kind) return false;
      if (!wanted) return true;
      if (/^#?\d+$/.test(wanted) && String(node.number) === wanted.replace("#", "")) return true;
      return `${node.number} ${node.idea ?? ""} ${node.reason ?? ""} ${words(node.verdict)}`.toLowerCase().includes(wanted);
    });
    const speed = ({ node }) => (node.verdict === "correct" && isNumber(node.speedup) ? node.speedup : -1);
    const sorts = {
      fastest: (a, b) => speed(b) - speed(a),
      newest: (a, b) => (b.node.at ?? 0) - (a.node.at ?? 0),
      dearest: (a, b) => (b.node.usd ?? -1) - (a.node.usd ?? -1),
    };
    return order in sorts ? rows.sort(sorts[order]) : rows;
  }

  function Cells({ row, best, top, isIndented }) {
    const { node, depth } = row;
    const mark = markOf(node, best);
    const isCorrect = node.verdict === "correct";
    const range = interval(node.low, node.high);
    const indent = isIndented ? Math.min(depth, MOST_INDENT) * 12 : 0;
    return html`<div role="gridcell" class="row-mark" style=${{ paddingLeft: `${indent}px` }}>
        <${Mark} mark=${mark} tone=${toneOf(node, top)} label=${`${node.confirmed ? "confirmed, " : ""}${STARK.nodeMark.MARKS[mark].name}`} />
      </div>
      <div role="gridcell" class="row-text">
        <div class="row-head">
          <b class="row-number">${node.number}</b>
          ${node.number === 0
            ? html`<span>the reference</span>`
            : isCorrect
              ? html`<span class="row-speed">${speedup(node.speedup, node.low)}</span>${range && html`<span class="soft">${range}</span>`}`
              : html`<span class="bad-text">${words(node.verdict)}</span>`}
          ${tags(node).map((tag) => html`<span key=${tag} class="tag">${tag}</span>`)}
          <span class="row-figures soft">${node.usd > 0 && html`<span class="hide-narrow">${usd(node.usd)}</span>`}${isNumber(node.us) && html`<span>${duration(node.us)}</span>`}</span>
        </div>
        <div class="row-idea soft">${(isCorrect || node.number === 0 ? node.idea : node.reason || node.idea) || (node.number === 0 ? "every candidate is compared with it" : "")}</div>
      </div>`;
  }

  function tags(node) {
    return [
      node.confirmed ? "confirmed" : "", node.pinned ? "pinned" : "", node.pruned ? "pruned" : "",
      node.by_person ? "by a person" : "", node.renamed ? "the module itself" : "",
    ].filter(Boolean);
  }

  STARK.TreeRows = TreeRows;
  STARK.nodeTags = tags;
}
