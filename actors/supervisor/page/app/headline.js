"use strict";
// The paragraph above every view: best so far and its idea, attempts, cost, what runs now.
{
  const { html, useEffect, useState } = STARK;
  const { clock, count, firstSentence, interval, isNumber, speedup, usd, words } = STARK.format;

  // Draw again each second, as long as something is under way.
  function useSeconds(isRunning) {
    const [, tick] = useState(0);
    useEffect(() => {
      if (!isRunning) return undefined;
      const timer = setInterval(() => tick((second) => second + 1), 1000);
      return () => clearInterval(timer);
    }, [isRunning]);
  }

  // `isWhole`: the view below is of all tasks, and not of one.
  function Headline({ app, model, task, isWhole }) {
    const known = model.tasks.get(task);
    useSeconds(model.run?.status === "running");
    if (isWhole && model.tasks.size > 1) return html`<${RunHeadline} app=${app} model=${model} />`;
    if (!known) return html`<p class="headline soft">This run has no task yet.</p>`;
    if (known.problem) return html`<p class="headline"><b>${task}</b> can't be measured: <span class="bad-text">${known.problem}</span></p>`;
    return html`<p class="headline">
      <${Best} app=${app} model=${model} task=${task} /> <${Progress} model=${model} tasks=${[known]} /> <${Cost} model=${model} /> <${Now} model=${model} task=${task} /> <${Person} model=${model} />
    </p>`;
  }

  function RunHeadline({ app, model }) {
    const names = [...model.tasks.keys()];
    const faster = names.filter((name) => model.best(name)).sort((a, b) => model.best(b).speedup - model.best(a).speedup);
    const [top] = faster;
    const best = top && model.best(top);
    return html`<p class="headline">
      <strong>${count(faster.length)} of ${count(names.length)} tasks</strong> ${faster.length === 1 ? "has" : "have"} a faster kernel${isFinished(model) ? "" : " so far"}${best && html`; the largest speed-up is <${NodeLink} app=${app} task=${top} number=${best.number}>${speedup(best.speedup, best.low)}<//> of ${top}${best.confirmed ? "" : ", a first look"}`}.
      ${" "}<${Progress} model=${model} tasks=${[...model.tasks.values()]} /> <${Cost} model=${model} /> <${Now} model=${model} /> <${Person} model=${model} />
    </p>`;
  }

  function NodeLink({ app, task, number, children }) {
    return html`<a href=${app.href({ view: "node", task, number })}>${children ?? number}</a>`;
  }

  function Best({ app, model, task }) {
    const best = model.best(task);
    const isOver = isFinished(model);
    if (!best) return html`<${Closest} app=${app} model=${model} task=${task} isOver=${isOver} />`;
    const known = model.tasks.get(task);
    const range = interval(best.low, best.high);
    const compiledUs = Math.min(...[known.compile_us, known.max_autotune_us].filter(isNumber));
    const compiled = isNumber(known.eager_us) && Number.isFinite(compiledUs) ? known.eager_us / compiledUs : null;
    const found = model.node(task, best.parent);
    const parent = found?.number > 0 && isNumber(found.speedup) ? found : null;
    const what = best.confirmed ? (isOver ? "The winner is" : "The best is") : "Best so far is";
    return html`<span>${what} <${NodeLink} app=${app} task=${task} number=${best.number}>attempt ${best.number}<//>: <strong class="figure">${speedup(best.speedup, best.low)}</strong>
      ${range && html`${" "}<span class="soft">(95 % interval ${range})</span>`} the speed of eager PyTorch${known.device ? ` on ${known.device}` : ""}${best.confirmed ? ", confirmed" : ", a first look: it is judged again at the end"}.
      ${compiled && html`${" "}torch.compile has ${speedup(compiled)}.`}
      ${best.idea && html`${" "}Its idea: <q>${firstSentence(best.idea)}</q>${parent ? `, on top of attempt ${parent.number} with ${speedup(parent.speedup)}` : ""}.`}</span>`;
  }

  function Closest({ app, model, task, isOver }) {
    const closest = model.closest(task);
    const nothing = isOver ? "Nothing faster was found" : "Nothing is faster yet";
    if (!closest) return html`<span><strong>${nothing}</strong>: no candidate ${isOver ? "was" : "is"} correct.</span>`;
    const range = interval(closest.low, closest.high);
    return html`<span><strong>${nothing}.</strong> Closest: <${NodeLink} app=${app} task=${task} number=${closest.number}>attempt ${closest.number}<//> with ${speedup(closest.speedup, closest.low)}${range && html`${" "}<span class="soft">(95 % interval ${range})</span>`}.</span>`;
  }

  function Progress({ model, tasks }) {
    const finished = tasks.flatMap((known) => model.finished(known.name));
    const correct = finished.filter((node) => node.verdict === "correct").length;
    const failed = finished.length - correct;
    const budget = tasks.reduce((sum, known) => sum + known.budget, 0);
    return html`<span>${count(finished.length)} of ${count(budget)} attempts are done: ${count(correct)} correct, ${count(failed)} failed.</span>`;
  }

  function Cost({ model }) {
    const { usd: spent, cap_usd: cap, seconds } = model.run;
    const price = isNumber(spent) ? usd(spent) : "an unknown price";
    return html`<span>The run has cost ${price}${isNumber(cap) ? ` of ${usd(cap)}` : ""} in ${clock(servedSeconds(model, seconds))} of run time${unitCosts(model, spent)}.</span>`;
  }

  // What an attempt cost, and each percent of a task's time that was saved; as in unit_costs.py.
  function unitCosts(model, spent) {
    if (!(spent > 0)) return "";
    let [begun, saved] = [0, 0];
    for (const task of model.tasks.keys()) {
      begun += model.finished(task).length + model.underWay(task).length;
      saved += 100 * Math.max(0, 1 - 1 / (model.best(task)?.speedup ?? 1));
    }
    const attempt = begun ? `: ${usd4(spent / begun)} an attempt` : "";
    return saved > 0 ? `${attempt}, ${usd4(spent / saved)} for 1 % of a task's time` : attempt;
  }

  const usd4 = (value) => `${value.toFixed(4)} USD`;

  // The seconds of the last delta, and those that have gone by since.
  function servedSeconds(model, seconds) {
    if (!isNumber(seconds)) return undefined;
    if (model.run.status !== "running" || model.secondsAt === undefined) return seconds;
    return seconds + Math.max(0, Date.now() / 1000 - model.secondsAt);
  }

  // What runs now: of one task, or of all where none is named.
  function Now({ model, task }) {
    const { status, reason, paused } = model.run;
    if (isFinished(model)) return html`<span>The run is over${reason ? `: ${reason}` : ""}.</span>`;
    if (status === "stopped") return html`<span>The run was stopped${reason ? ` (${reason})` : ""}; it can be resumed.</span>`;
    if (status !== "running") return html`<span>The run is ${words(status)}${reason ? `: ${reason}` : ""}.</span>`;
    const attempts = task === undefined ? model.attempts : model.underWay(task);
    if (paused) return html`<span><strong>Paused</strong>: no new work begins until it goes on${attempts.length ? `; still running: ${listed(attempts, model, task)}` : ""}.</span>`;
    if (!attempts.length && task !== undefined) {
      const other = model.attempts.length;
      return html`<span>${other ? `Nothing of this task runs now; ${other} of other tasks.` : "Nothing runs at the moment."}</span>`;
    }
    if (!attempts.length) return html`<span>Nothing runs at the moment.</span>`;
    return html`<span>Running now: ${listed(attempts, model, task)}.</span>`;
  }

  function listed(attempts, model, task) {
    const shown = attempts.slice(0, 3).map((attempt) => {
      const time = isNumber(attempt.since) ? ` for ${clock(model.now() - attempt.since)}` : "";
      return `${task === undefined ? `${attempt.task}: ` : ""}${attempt.number === 0 ? "the reference" : `attempt ${attempt.number}`} (${words(attempt.stage)}${attempt.slot ? ` on ${attempt.slot}` : ", waits"}${time})`;
    });
    if (attempts.length > 3) shown.push(`${attempts.length - 3} more`);
    return shown.join(", ");
  }

  // A result that a person helped with says so wherever it is shown.
  function Person({ model }) {
    const counts = Object.entries(model.run.person ?? {}).filter(([, number]) => number > 0);
    if (!counts.length) return null;
    return html`<span>A person steered it: ${counts.map(([verb, number]) => `${words(verb)}${number > 1 ? ` ${number} times` : ""}`).join(", ")}.</span>`;
  }

  function isFinished(model) {
    return ["finished", "refused"].includes(model.run?.status);
  }

  STARK.Headline = Headline;
  STARK.NodeLink = NodeLink;
  STARK.isFinished = isFinished;
  STARK.useSeconds = useSeconds;
}
