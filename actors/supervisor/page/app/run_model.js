"use strict";
// One run as the page knows it: what the server sent, merged by key, and figures derived from it.
{
  const { isNumber } = STARK.format;
  const EVENTS_KEPT = 1000;

  const keyOf = (task, number) => `${task}/${number}`;

  class RunModel {
    constructor() {
      this.version = 0; // counts every delta
      this.treeVersion = 0; // counts the deltas that changed a node
      this.reset();
    }

    reset() {
      this.seq = 0;
      this.run = null;
      this.tasks = new Map();
      this.nodes = new Map(); // TASK/NUMBER -> summary
      this.numbers = new Map(); // task -> its summaries
      this.childLists = new Map(); // TASK/NUMBER -> summaries of the children
      this.attempts = [];
      this.workers = new Map();
      this.events = new Map();
      this.directives = new Map();
      this.clockOffset = 0; // the server's clock less ours, seconds
      this.memory = new Map();
      this.version += 1;
      this.treeVersion += 1;
    }

    // Merge what changed.  A delta that is older than what is known is dropped; one that is whole,
    // or of another run in the same folder, replaces everything.
    apply(delta) {
      const isOther = this.run && delta.run && delta.run.run_id !== this.run.run_id;
      if (delta.whole || isOther) this.reset();
      if (delta.seq < this.seq) return;
      this.seq = delta.seq;
      if (delta.run) {
        this.run = delta.run;
        this.secondsAt = Date.now() / 1000; // when run.seconds was true
      }
      if (isNumber(delta.now)) this.clockOffset = delta.now - Date.now() / 1000;
      for (const task of delta.tasks ?? []) this.tasks.set(task.name, task);
      for (const node of delta.nodes ?? []) this.takeNode(node);
      for (const worker of delta.workers ?? []) this.workers.set(worker.slot, worker);
      for (const event of delta.events ?? []) this.events.set(event.id, event);
      for (const row of delta.directives ?? []) this.directives.set(row.key, row);
      this.attempts = delta.attempts ?? this.attempts;
      this.forgetOldEvents();
      this.version += 1;
      if (delta.nodes?.length || delta.tasks?.length) this.treeVersion += 1;
    }

    takeNode(node) {
      const key = keyOf(node.task, node.number);
      const known = this.nodes.get(key);
      if (known) {
        Object.assign(known, node);
        return;
      }
      this.nodes.set(key, node);
      this.listIn(this.numbers, node.task).push(node);
      if (node.number !== 0) this.listIn(this.childLists, keyOf(node.task, node.parent)).push(node);
    }

    listIn(map, key) {
      if (!map.has(key)) map.set(key, []);
      return map.get(key);
    }

    forgetOldEvents() {
      for (const id of this.events.keys()) {
        if (this.events.size <= EVENTS_KEPT) break;
        this.events.delete(id);
      }
    }

    now() {
      return Date.now() / 1000 + this.clockOffset;
    }

    node(task, number) {
      return this.nodes.get(keyOf(task, number));
    }

    children(task, number) {
      return this.childLists.get(keyOf(task, number)) ?? [];
    }

    // The finished attempts of a task in the order in which they ended, without the root.
    finished(task) {
      return this.remembered(`finished ${task}`, () =>
        (this.numbers.get(task) ?? [])
          .filter((node) => node.number !== 0)
          .sort((a, b) => (a.at ?? 0) - (b.at ?? 0) || a.number - b.number),
      );
    }

    underWay(task) {
      return this.attempts.filter((attempt) => attempt.task === task);
    }

    best(task) {
      const number = this.tasks.get(task)?.best;
      return isNumber(number) ? this.node(task, number) : undefined;
    }

    // The candidate that comes closest, for a task where nothing is faster.
    closest(task) {
      const correct = this.finished(task).filter(
        (node) => node.verdict === "correct" && isNumber(node.speedup) && !node.renamed,
      );
      return correct.reduce((best, node) => (!best || node.speedup > best.speedup ? node : best), undefined);
    }

    verdictCounts(task) {
      return this.remembered(`counts ${task}`, () => {
        const counts = new Map();
        for (const node of this.finished(task)) {
          counts.set(node.verdict, (counts.get(node.verdict) ?? 0) + 1);
        }
        return new Map([...counts].sort((a, b) => b[1] - a[1]));
      });
    }

    // The numbers on the way from the root to a node, both included.
    path(task, number) {
      const found = new Set(); // a set keeps its order, and ends a loop of parents
      let node = this.node(task, number);
      while (node && !found.has(node.number)) {
        found.add(node.number);
        node = node.number === 0 ? undefined : this.node(task, node.parent);
      }
      return [...found].reverse();
    }

    // Every node with its depth, children after their parent; a loop and no recursion, because a
    // tree may be 10,000 nodes deep.
    treeOrder(task) {
      return this.remembered(`order ${task}`, () => {
        const nodes = this.numbers.get(task) ?? [];
        const isTop = (node) => node.number === 0 || !this.node(task, node.parent);
        const stack = nodes.filter(isTop).sort((a, b) => b.number - a.number).map((node) => [node, 0]);
        const rows = [];
        while (stack.length) {
          const [node, depth] = stack.pop();
          rows.push({ node, depth });
          const children = [...this.children(task, node.number)].sort((a, b) => b.number - a.number);
          for (const child of children) stack.push([child, depth + 1]);
        }
        return rows;
      });
    }

    // Number -> how many nodes its subtree has, itself included.
    subtreeSizes(task) {
      return this.remembered(`sizes ${task}`, () => {
        const sizes = new Map();
        for (const { node } of [...this.treeOrder(task)].reverse()) {
          const own = (sizes.get(node.number) ?? 0) + 1;
          sizes.set(node.number, own);
          if (node.number !== 0) sizes.set(node.parent, (sizes.get(node.parent) ?? 0) + own);
        }
        return sizes;
      });
    }

    // What the search came to: the confirmed speed-up, 1 where nothing is faster, null while it goes on.
    finalSpeedup(task) {
      const best = this.best(task);
      if (best?.confirmed) return best.speedup;
      return this.tasks.get(task)?.status === "finished" ? (best?.speedup ?? 1) : null;
    }

    // A step for each attempt that ended: what was best by then, after how long, for how much.
    // These are first looks, as the search saw them; the end of it is `finalSpeedup`.
    bestSoFar(task) {
      return this.remembered(`curve ${task}`, () => {
        const started = this.run?.started ?? 0;
        let [best, dollars] = [1, 0];
        return this.finished(task).map((node, index) => {
          dollars += isNumber(node.usd) ? node.usd : 0;
          const wasAgain = isNumber(node.first_speedup);
          const speedup = wasAgain ? node.first_speedup : node.speedup;
          const isFaster = node.verdict === "correct" && !node.renamed && (wasAgain || node.low > 1);
          const isBetter = isFaster && speedup > best;
          if (isBetter) best = speedup;
          const minutes = isNumber(node.at) ? (node.at - started) / 60 : null;
          return { node, speedup, isBetter, best, attempts: index + 1, minutes, usd: dollars };
        });
      });
    }

    // A value that is computed again only when the tree has changed.
    remembered(name, compute) {
      const known = this.memory.get(name);
      if (known && known.version === this.treeVersion) return known.value;
      const value = compute();
      this.memory.set(name, { version: this.treeVersion, value });
      return value;
    }
  }

  STARK.RunModel = RunModel;
}
