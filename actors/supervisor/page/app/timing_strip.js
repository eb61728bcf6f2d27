"use strict";
// How the measured times are spread: reference and candidate on one axis, and their paired ratios.
{
  const { html } = STARK;
  const { duration, isNumber, plural, speedup } = STARK.format;
  const [WIDTH, ROW, BINS] = [640, 46, 48];
  const [LEFT, RIGHT] = [86, 16];
  const FEW = 16; // measurements below this number are dots, each one seen

  function TimingStrip({ timing, low, high }) {
    const reference = (timing?.reference_us ?? []).filter(isNumber);
    const candidate = (timing?.candidate_us ?? []).filter(isNumber);
    const ratios = (timing?.ratio ?? []).filter(isNumber);
    if (!reference.length && !candidate.length && !ratios.length) return null;
    return html`<div class="timing">
      ${(reference.length > 0 || candidate.length > 0) && html`<${Strip} label="Time of a call" text=${duration} isFromZero=${true}
        rows=${[{ name: "reference", values: reference, tone: "reference" }, { name: "candidate", values: candidate, tone: "candidate" }]} />`}
      ${ratios.length > 0 && html`<${Strip} label="Speed-up, pair by pair" text=${(value) => speedup(value)}
        rows=${[{ name: "ratio", values: ratios, tone: "candidate", low, high }]} />`}
    </div>`;
  }

  function Strip({ rows, label, text, isFromZero }) {
    const all = rows.flatMap((row) => row.values);
    const [least, most] = [Math.min(...all), Math.max(...all)];
    const margin = (most - least) * 0.05 || most * 0.05 || 1;
    // Times begin at zero where that costs little room, so that lengths may be compared.
    const from = isFromZero && least < 0.7 * most ? 0 : least - margin;
    const to = most + margin;
    const x = (value) => LEFT + ((value - from) / (to - from)) * (WIDTH - LEFT - RIGHT);
    const height = rows.length * ROW + 24;
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => from + share * (to - from));
    const spoken = rows.filter((row) => row.values.length)
      .map((row) => `${row.name}: median ${text(median(row.values))} of ${plural(row.values.length, "measurement")}`).join("; ");
    return html`<figure>
      <figcaption>${label}</figcaption>
      <svg viewBox=${`0 0 ${WIDTH} ${height}`} role="img" aria-label=${`${label}: ${spoken}`}>
        ${ticks.map((tick, index) => html`<g key=${index}><line class="grid" x1=${x(tick)} x2=${x(tick)} y1="0" y2=${height - 20} />
          <text x=${x(tick)} y=${height - 5} text-anchor=${index === 4 ? "end" : "middle"}>${text(tick)}</text></g>`)}
        ${rows.map((row, index) => row.values.length > 0 && html`<${Histogram} key=${row.name} row=${row} x=${x} from=${from} to=${to} base=${(index + 1) * ROW - 6} text=${text} />`)}
      </svg>
    </figure>`;
  }

  function Histogram({ row, x, from, to, base, text }) {
    const middle = median(row.values);
    return html`<g class=${`histogram ${row.tone}`}>
      <text class="name" x=${LEFT - 10} y=${base - 10} text-anchor="end">${row.name}</text>
      ${isNumber(row.low) && isNumber(row.high) && html`<rect class="interval" x=${x(Math.max(row.low, from))} width=${Math.max(2, x(Math.min(row.high, to)) - x(Math.max(row.low, from)))} y=${base - 36} height="36"><title>95 % interval</title></rect>`}
      ${row.values.length < FEW ? row.values.map((value, index) => html`<circle class="dot" key=${index} cx=${x(value)} cy=${base - 10} r="4" />`) : bars(row.values, x, from, to, base)}
      <line class="median" x1=${x(middle)} x2=${x(middle)} y1=${base - 36} y2=${base + 2} />
      <text class="median-text" x=${x(middle) + (x(middle) > WIDTH - 90 ? -5 : 5)} y=${base - 28} text-anchor=${x(middle) > WIDTH - 90 ? "end" : "start"}>median ${text(middle)}</text>
    </g>`;
  }

  function bars(values, x, from, to, base) {
    const bins = Array(BINS).fill(0);
    for (const value of values) bins[Math.min(BINS - 1, Math.floor(((value - from) / (to - from)) * BINS))] += 1;
    const most = Math.max(...bins);
    const wide = (x(to) - x(from)) / BINS;
    return bins.map((number, index) => number > 0 && html`<rect class="bar" key=${index} x=${x(from) + index * wide + 0.5}
      width=${Math.max(1, wide - 1)} y=${base - (number / most) * 30} height=${(number / most) * 30} />`);
  }

  function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }

  STARK.TimingStrip = TimingStrip;
}
