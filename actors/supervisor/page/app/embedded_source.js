"use strict";
// The run inside report.html: base64 of gzip of JSON.  Long texts are stored once, in pieces.
{
  class EmbeddedSource {
    constructor(element) {
      this.kind = "embedded";
      this.element = element;
      this.data = null;
    }

    async begin() {
      if (typeof DecompressionStream === "undefined") {
        throw new Error("This browser is too old to unpack the run inside this file; the report below is complete.");
      }
      const binary = atob(this.element.textContent.trim());
      const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
      const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      this.data = await new Response(unpacked).json();
      this.element.textContent = ""; // the packed text is not needed again
      const { run, tasks } = this.data.since;
      const names = (tasks ?? []).map((task) => task.name);
      this.leftOut = this.data.left_out ?? [];
      return { runs: [{ id: run.id, name: run.name, status: run.status, tasks: names }], steer: false };
    }

    // The run is over: one delta, and nothing to stop.
    watch(run, model, listener) {
      model.apply(this.data.since);
      listener.onState("embedded");
      listener.onDelta();
      return () => {};
    }

    async since() {
      return this.data.since;
    }

    async node(run, task, number) {
      const stored = this.data.nodes[`${task}/${number}`];
      if (!stored) throw new Error(`Node ${number} is not in this file; run.db has it.`);
      const details = this.restored(stored);
      const summary = this.data.since.nodes.find((node) => node.task === task && node.number === number);
      const best = this.data.since.tasks.find((known) => known.name === task)?.best;
      details.summary ??= summary;
      details.parent_source ??= this.sourceOf(task, summary?.parent);
      details.best_source ??= this.sourceOf(task, best);
      details.root_source ??= this.sourceOf(task, 0);
      return details;
    }

    sourceOf(task, number) {
      const stored = this.data.nodes[`${task}/${number}`];
      return stored ? this.restored(stored.source ?? null) : null;
    }

    // Pairs of first piece and number of pieces: a whole source that repeats is one pair.
    text(pairs) {
      const parts = [];
      for (let at = 0; at < pairs.length; at += 2) {
        parts.push(this.data.pieces.slice(pairs[at], pairs[at] + pairs[at + 1]).join(""));
      }
      return parts.join("");
    }

    // Put texts back where {"$text": i} stands for them.
    restored(value) {
      if (Array.isArray(value)) return value.map((part) => this.restored(part));
      if (value === null || typeof value !== "object") return value;
      if (typeof value.$text === "number") {
        return this.text(this.data.texts[value.$text]);
      }
      return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, this.restored(part)]));
    }
  }

  STARK.EmbeddedSource = EmbeddedSource;
}
