"use strict";
// Where the reader is, kept in the address after "#", so that every view and node has a link.
{
  const VIEWS = ["report", "tasks", "tree", "node", "best", "fleet", "compare", "directives"];

  // `#/node/TASK/7/diff?run=ID&against=best` -> {view, task, number, tab, options}
  function read(fragment) {
    const [path, query = ""] = fragment.replace(/^#\/?/, "").split("?");
    const parts = path.split("/").map(decoded);
    const view = VIEWS.includes(parts[0]) ? parts[0] : "";
    const number = /^\d+$/.test(parts[2] ?? "") ? Number(parts[2]) : null;
    const options = Object.fromEntries(new URLSearchParams(query));
    return { view, task: parts[1] ?? "", number, tab: parts[3] ?? "", options };
  }

  // A hand-made address may hold a stray "%".
  function decoded(part) {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  }

  function write({ view, task = "", number = null, tab = "", options = {} }) {
    const parts = [view, task, number === null ? "" : String(number), tab];
    while (parts.length > 1 && parts.at(-1) === "") parts.pop();
    const kept = Object.entries(options).filter(([, value]) => value !== "" && value != null);
    const query = new URLSearchParams(kept).toString();
    return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
  }

  function go(route) {
    window.location.hash = write(route);
  }

  // Change the address without a new step in the browser's history.
  function replace(route) {
    window.history.replaceState(null, "", write(route));
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  }

  STARK.route = { go, read, replace, write };
}
