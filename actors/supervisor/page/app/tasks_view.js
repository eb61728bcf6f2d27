"use strict";
// All tasks of a run in one table: what each came to, and what it failed by.
{
  const { html } = STARK;
  const { count, duration, interval, speedup, words } = STARK.format;

  function TasksView({ app, model }) {
    const tasks = [...model.tasks.values()];
    return html`<section class="panel" aria-labelledby="tasks-title">
      <h2 id="tasks-title">Tasks</h2>
      <div class="wide"><table class="list cards">
        <thead><tr><th>task</th><th class="number">best</th><th class="number">interval</th><th class="number">reference</th><th class="number">attempts</th><th>failed</th><th>state</th><th>idea</th></tr></thead>
        <tbody>${tasks.map((task) => html`<${Row} key=${task.name} app=${app} model=${model} task=${task} />`)}</tbody>
      </table></div>
    </section>`;
  }

  function Row({ app, model, task }) {
    const best = model.best(task.name);
    const failed = [...model.verdictCounts(task.name)].filter(([verdict]) => verdict !== "correct");
    const running = model.underWay(task.name).length;
    return html`<tr>
      <td data-label="task"><a href=${app.href({ view: "tree", task: task.name })}><b>${task.name}</b></a></td>
      <td data-label="best" class="number">${best
        ? html`<${STARK.NodeLink} app=${app} task=${task.name} number=${best.number}>${speedup(best.speedup, best.low)}<//>${best.confirmed ? "" : html` <span class="soft">first look</span>`}`
        : html`<span class="soft">nothing faster</span>`}</td>
      <td data-label="interval" class="number soft">${best ? interval(best.low, best.high) : ""}</td>
      <td data-label="reference" class="number">${duration(task.eager_us)}</td>
      <td data-label="attempts" class="number">${count(model.finished(task.name).length)} of ${count(task.budget)}</td>
      <td data-label="failed">${failed.map(([verdict, number]) => `${count(number)} ${words(verdict)}`).join(", ") || "none"}</td>
      <td data-label="state">${words(task.status)}${running ? html` <span class="soft">· ${running} under way</span>` : ""}${task.problem ? html`<br /><span class="bad-text">${task.problem}</span>` : ""}</td>
      <td data-label="idea">${best?.idea ? STARK.format.firstSentence(best.idea, 110) : ""}</td></tr>`;
  }

  STARK.TasksView = TasksView;
}
