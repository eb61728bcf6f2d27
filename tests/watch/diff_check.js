() => {
  // Compare STARK.lineDiff with the table of longest common subsequences, on random short texts.
  const commonLines = (a, b) => {
    const best = Array.from({ length: a.length + 1 }, () => Array(b.length + 1).fill(0));
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
      }
    }
    return best[0][0];
  };
  let state = 1;
  const draw = (limit) => {
    state = (state * 48271) % 2147483647;
    return state % limit;
  };
  const draft = () => Array.from({ length: draw(14) }, () => "abcd"[draw(4)]);
  const text = (lines) => lines.map((line) => `${line}\n`).join("");
  const wrong = [];
  for (let turn = 0; turn < 3000; turn += 1) {
    const [a, b] = [draft(), draft()];
    const lines = STARK.lineDiff(text(a), text(b));
    const without = (sign) => lines.filter((line) => line.sign !== sign).map((line) => line.text).join();
    const equal = lines.filter((line) => line.sign === " ").length;
    const isRight = without("+") === a.join() && without("-") === b.join() && equal === commonLines(a, b);
    if (!isRight) wrong.push([a.join(), b.join()]);
  }
  return wrong.slice(0, 3);
}
