"use strict";
// Best so far as a chart: one stepped line a curve, a dot a correct attempt, a cross a failed one.
{
  const { html, useEffect, useRef, useState } = STARK;
  const { isNumber, speedup } = STARK.format;
  const HEIGHT = 340;
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 4]];
  const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
  const AXES = {
    attempts: { name: "attempts", text: (value) => String(value) },
    minutes: { name: "minutes", text: (value) => `${+value.toFixed(1)}` },
    usd: { name: "USD", text: (value) => `${+value.toFixed(3)}` },
  };

  // curves: [{name, steps (of RunModel.bestSoFar), end (finalSpeedup), version}]
  function CurveChart({ curves, axis, onPick, label }) {
    const box = useRef(null);
    const [theme, setTheme] = useState(0);
    const signature = `${axis} ${theme} ${curves.map((curve) => `${curve.name} ${curve.steps.length} ${curve.version}`).join()}`;
    useEffect(() => {
      const dark = window.matchMedia("(prefers-color-scheme: dark)");
      const change = () => setTheme((count) => count + 1);
      dark.addEventListener("change", change);
      return () => dark.removeEventListener("change", change);
    }, []);
    useEffect(() => {
      const drawn = draw(box.current, curves, axis, onPick);
      const resized = new ResizeObserver(() => drawn.setSize({ width: box.current.clientWidth, height: HEIGHT }));
      resized.observe(box.current);
      return () => {
        resized.disconnect();
        drawn.destroy();
      };
    }, [signature]);
    return html`<div class="curve-chart" ref=${box} role="img" aria-label=${label}></div>`;
  }

  function colourOf(element, index) {
    return getComputedStyle(element).getPropertyValue(`--series${index % 6}`).trim();
  }

  // A place to the right of the one before: equal places would fall together.
  function places(steps, axis) {
    let before = -Infinity;
    return steps.map((step) => {
      const value = isNumber(step[axis]) ? step[axis] : Math.max(before, 0);
      before = value > before ? value : before + 1e-6;
      return before;
    });
  }

  function draw(element, curves, axis, onPick) {
    const style = getComputedStyle(element);
    const colour = (name) => style.getPropertyValue(name).trim();
    const tables = [];
    const failures = [];
    const series = [{ label: AXES[axis].name }];
    curves.forEach((curve, index) => {
      const xs = places(curve.steps, axis);
      const ink = colourOf(element, index);
      const isCorrect = (step) => step.node.verdict === "correct" && isNumber(step.speedup);
      const start = axis === "attempts" ? 0 : Math.min(0, xs[0] ?? 0);
      const hasEnd = isNumber(curve.end) && xs.length > 0;
      const after = hasEnd ? [xs.at(-1) + 1e-6] : [];
      tables.push([[start, ...xs, ...after], [1, ...curve.steps.map((step) => step.best), ...(hasEnd ? [curve.end] : [])]]);
      series.push({ label: curve.name, stroke: ink, width: 2.5, dash: DASHES[index % 6], spanGaps: true, paths: window.uPlot.paths.stepped({ align: 1 }), points: { show: false } });
      tables.push([[start, ...xs], [null, ...curve.steps.map((step) => (isCorrect(step) ? step.speedup : null))]]);
      series.push({ label: "", stroke: ink, paths: () => null, points: { show: true, size: 5, width: 1.2, stroke: ink, fill: colour("--paper") } });
      if (hasEnd) {
        tables.push([after, [curve.end]]);
        series.push({ label: "", stroke: ink, paths: () => null, points: { show: true, size: 10, width: 1, stroke: ink, fill: ink } });
      }
      curve.steps.forEach((step, at) => {
        if (step.node.verdict !== "correct") failures.push(xs[at]);
      });
    });
    const speeds = curves.flatMap((curve) => curve.steps.map((step) => step.speedup)).filter((value) => isNumber(value) && value > 0);
    const isLog = Math.max(1, ...speeds) > 12;
    const grid = { stroke: colour("--line"), width: 1 };
    const tick = { stroke: colour("--soft"), font: `12px ${style.fontFamily}`, grid, ticks: { show: false } };
    const options = {
      width: element.clientWidth || 600, height: HEIGHT, legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false } },
      scales: {
        x: { time: false, range: (plot, low, high) => [Math.min(0, low), high > low ? high : low + 1] },
        y: { distr: isLog ? 3 : 1, log: 2, range: (plot, low, high) => yRange(low, high, isLog) },
      },
      axes: [
        { ...tick, label: AXES[axis].name, size: 30, labelSize: 20, labelGap: 2, labelFont: `12px ${style.fontFamily}`, values: (plot, values) => values.map((value) => (value === null ? "" : AXES[axis].text(value))), ...(axis === "attempts" ? { incrs: WHOLE_STEPS } : {}) },
        { ...tick, size: 56, ...(isLog ? { splits: logSplits, filter: (plot, splits) => splits } : {}), values: (plot, values) => values.map((value) => (value === null ? "" : speedup(value))) },
      ],
      series,
      hooks: { draw: [(plot) => drawMarks(plot, failures, colour)], setCursor: [(plot) => pick(plot, curves, axis, onPick)] },
    };
    const plot = new window.uPlot(options, window.uPlot.join(tables), element);
    return plot;
  }

  // 1, 2, 5, 10 … where the axis of speeds is logarithmic.
  function logSplits(plot, axis, low, high) {
    const found = [];
    for (let ten = 0.01; ten <= high; ten *= 10) found.push(ten, 2 * ten, 5 * ten);
    return found.map((value) => Number(value.toPrecision(2))).filter((value) => value >= low && value <= high);
  }

  function yRange(low, high, isLog) {
    const [least, most] = [Math.min(low ?? 1, 1), Math.max(high ?? 1, 1.1)];
    return isLog ? [least / 1.3, most * 1.2] : [Math.max(0, least - (most - least) * 0.12), most + (most - least) * 0.08];
  }

  // The speed of the reference as a dashed line, and a small cross a failed attempt at the foot.
  function drawMarks(plot, failures, colour) {
    const { ctx, bbox } = plot;
    const pixel = window.devicePixelRatio || 1;
    ctx.save();
    ctx.strokeStyle = colour("--soft");
    ctx.lineWidth = pixel;
    ctx.setLineDash([4 * pixel, 4 * pixel]);
    const one = Math.round(plot.valToPos(1, "y", true));
    ctx.beginPath();
    ctx.moveTo(bbox.left, one);
    ctx.lineTo(bbox.left + bbox.width, one);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.strokeStyle = colour("--bad");
    ctx.globalAlpha = failures.length > 300 ? 0.3 : 1; // many crosses show where they are dense
    ctx.lineWidth = 1.4 * pixel;
    ctx.beginPath();
    const [foot, arm] = [bbox.top + bbox.height - 7 * pixel, 3 * pixel];
    for (const failure of failures) {
      const x = plot.valToPos(failure, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.moveTo(x - arm, foot - arm);
      ctx.lineTo(x + arm, foot + arm);
      ctx.moveTo(x + arm, foot - arm);
      ctx.lineTo(x - arm, foot + arm);
    }
    ctx.stroke();
    ctx.restore();
  }

  // Tell which attempt of the first curve the pointer is over.
  function pick(plot, curves, axis, onPick) {
    const { left } = plot.cursor;
    if (!onPick || left === undefined || left < 0) return;
    const x = plot.posToVal(left, "x");
    const found = curves.map((curve) => {
      const step = curve.steps.findLast((known) => isNumber(known[axis]) && known[axis] <= x + (axis === "attempts" ? 0.5 : 0));
      return step && { name: curve.name, step };
    });
    onPick(found.filter(Boolean));
  }

  STARK.CurveChart = CurveChart;
  STARK.curveAxes = AXES;
  STARK.curveDashes = DASHES;
}
