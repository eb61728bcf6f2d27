"use strict";
// The difference of two texts by lines: Myers' greedy algorithm with a limit on its work.
{
  const MOST_EDITS = 1500; // beyond it the middle is shown as removed and added as a whole

  // Return [{sign: " " | "-" | "+", text, before, after}], line numbers from 1.
  function lineDiff(oldText, newText) {
    const before = splitLines(oldText);
    const after = splitLines(newText);
    let first = 0;
    while (first < before.length && first < after.length && before[first] === after[first]) first += 1;
    let last = 0;
    while (
      last < before.length - first &&
      last < after.length - first &&
      before[before.length - 1 - last] === after[after.length - 1 - last]
    ) last += 1;
    const middle = editScript(
      before.slice(first, before.length - last),
      after.slice(first, after.length - last),
    );
    const signs = [...Array(first).fill(" "), ...middle, ...Array(last).fill(" ")];
    return numbered(signs, before, after);
  }

  function splitLines(text) {
    const lines = String(text ?? "").split("\n");
    if (lines.at(-1) === "") lines.pop();
    return lines;
  }

  function numbered(signs, before, after) {
    let [x, y] = [0, 0];
    return signs.map((sign) => {
      if (sign === "-") return { sign, text: before[x], before: ++x, after: null };
      if (sign === "+") return { sign, text: after[y], before: null, after: ++y };
      return { sign, text: after[y], before: ++x, after: ++y };
    });
  }

  // The shortest list of signs that turns one list of lines into the other.
  function editScript(before, after) {
    const replaced = [...Array(before.length).fill("-"), ...Array(after.length).fill("+")];
    if (!before.length || !after.length) return replaced;
    const trace = furthestPaths(before, after);
    return trace ? walkBack(trace, before.length, after.length) : replaced;
  }

  // For each number of edits the furthest x on every diagonal; null beyond the limit.
  function furthestPaths(before, after) {
    const most = Math.min(before.length + after.length, MOST_EDITS);
    const offset = most + 1;
    const furthest = new Int32Array(2 * most + 3);
    const trace = [];
    for (let edits = 0; edits <= most; edits += 1) {
      trace.push(furthest.slice(offset - edits - 1, offset + edits + 2));
      for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
        const isDown =
          diagonal === -edits ||
          (diagonal !== edits && furthest[offset + diagonal - 1] < furthest[offset + diagonal + 1]);
        let x = isDown ? furthest[offset + diagonal + 1] : furthest[offset + diagonal - 1] + 1;
        let y = x - diagonal;
        while (x < before.length && y < after.length && before[x] === after[y]) {
          x += 1;
          y += 1;
        }
        furthest[offset + diagonal] = x;
        if (x >= before.length && y >= after.length) return trace;
      }
    }
    return null;
  }

  function walkBack(trace, endX, endY) {
    const signs = [];
    let [x, y] = [endX, endY];
    for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
      const furthest = trace[edits];
      const at = (diagonal) => furthest[diagonal + edits + 1];
      const diagonal = x - y;
      const isDown = diagonal === -edits || (diagonal !== edits && at(diagonal - 1) < at(diagonal + 1));
      const from = isDown ? diagonal + 1 : diagonal - 1;
      const [fromX, fromY] = edits ? [at(from), at(from) - from] : [0, 0];
      while (x > fromX && y > fromY) {
        signs.push(" ");
        x -= 1;
        y -= 1;
      }
      if (edits) signs.push(isDown ? "+" : "-");
      [x, y] = [fromX, fromY];
    }
    return signs.reverse();
  }

  // Group a diff for reading: runs of equal lines longer than 2 * context become one gap.
  function hunks(lines, context = 3) {
    const isNear = new Uint8Array(lines.length);
    lines.forEach((line, index) => {
      if (line.sign === " ") return;
      const from = Math.max(0, index - context);
      for (let k = from; k <= Math.min(lines.length - 1, index + context); k += 1) isNear[k] = 1;
    });
    const groups = [];
    lines.forEach((line, index) => {
      const kind = isNear[index] ? "lines" : "gap";
      if (groups.at(-1)?.kind !== kind) groups.push({ kind, lines: [] });
      groups.at(-1).lines.push(line);
    });
    return groups.map((group) => (group.kind === "gap" && group.lines.length < 4 ? { ...group, kind: "lines" } : group));
  }

  STARK.lineDiff = lineDiff;
  STARK.hunks = hunks;
}
