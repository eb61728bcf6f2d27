"use strict";
// Sources, logs and differences: plain text nodes, with line numbers that are not copied.
{
  const { html, useMemo, useState } = STARK;
  const MOST_LINES = 2000; // of a text at first sight; a button shows the rest
  const { count } = STARK.format;

  function TextView({ text, label, hasNumbers = true, isWrapped = false }) {
    const [isWhole, showWhole] = useState(false);
    const lines = useMemo(() => String(text ?? "").split("\n"), [text]);
    if (text === null || text === undefined) return html`<p class="empty">There is none.</p>`;
    if (text === "") return html`<p class="empty">It is empty.</p>`;
    const shown = isWhole ? lines : lines.slice(0, MOST_LINES);
    const numbers = hasNumbers ? shown.map((_, index) => index + 1).join("\n") : "";
    return html`<div class=${`text-view ${isWrapped ? "is-wrapped" : ""}`} tabindex="0" role="region" aria-label=${label}>
      ${hasNumbers && html`<pre class="line-numbers" aria-hidden="true">${numbers}</pre>`}
      <pre class="lines">${shown.join("\n")}</pre>
    </div>
    ${shown.length < lines.length && html`<button type="button" onClick=${() => showWhole(true)}>Show all ${count(lines.length)} lines</button>`}`;
  }

  function CopyButton({ text }) {
    const [said, say] = useState("");
    if (!text || !navigator.clipboard) return null;
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(text);
        say("Copied");
      } catch {
        say("Not allowed");
      }
      setTimeout(() => say(""), 1500);
    };
    return html`<button type="button" class="copy" onClick=${copy}>${said || "Copy"}</button>`;
  }

  function DiffView({ before, after, label }) {
    const [opened, setOpened] = useState(() => new Set());
    const lines = useMemo(() => STARK.lineDiff(before, after), [before, after]);
    const groups = useMemo(() => STARK.hunks(lines), [lines]);
    const added = lines.filter((line) => line.sign === "+").length;
    const removed = lines.filter((line) => line.sign === "-").length;
    if (!added && !removed) return html`<p class="empty">The two sources are the same.</p>`;
    const open = (index) => setOpened(new Set([...opened, index]));
    return html`<p class="diff-count"><span class="added-text">+${count(added)} added</span> <span class="removed-text">−${count(removed)} removed</span></p>
      <div class="text-view diff" tabindex="0" role="region" aria-label=${label}>
        <table><tbody>
          ${groups.map((group, index) => group.kind === "lines" || opened.has(index)
            ? group.lines.slice(0, MOST_LINES).map((line) => html`<${DiffLine} line=${line} />`)
            : html`<tr class="gap"><td colspan="4"><button type="button" class="link" onClick=${() => open(index)}>${count(group.lines.length)} equal lines</button></td></tr>`)}
        </tbody></table>
      </div>`;
  }

  function DiffLine({ line }) {
    const kind = { "+": "added", "-": "removed", " ": "equal" }[line.sign];
    const sign = { "+": "+", "-": "−", " ": "" }[line.sign];
    return html`<tr class=${kind}>
      <td class="line-number" data-number=${line.before ?? ""}></td>
      <td class="line-number" data-number=${line.after ?? ""}></td>
      <td class="sign">${sign}</td>
      <td class="line">${line.text}</td>
    </tr>`;
  }

  STARK.TextView = TextView;
  STARK.DiffView = DiffView;
  STARK.CopyButton = CopyButton;
}
