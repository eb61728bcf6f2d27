"use strict";
// The fleet: what each actor does and for how long, leases and heartbeats, devices, spend, events.
{
  const { html, useState } = STARK;
  const { clock, count, hour, isNumber, plural, usd, words } = STARK.format;
  const EVENTS_SHOWN = 60;
  const ROLES = ["coordinator", "planner", "coder", "debugger", "evaluator"];

  function FleetView({ model }) {
    STARK.useSeconds(model.run.status === "running");
    const workers = [...model.workers.values()].sort(byRole);
    return html`<div class="fleet-view">
      <${Meters} model=${model} />
      <section class="panel" aria-labelledby="actors-title">
        <h2 id="actors-title">Actors</h2>
        ${workers.length ? html`<${Actors} model=${model} workers=${workers} />` : html`<p class="empty">No worker has said hello yet.</p>`}
      </section>
      <section class="panel" aria-labelledby="events-title"><h2 id="events-title">Events</h2><${Events} model=${model} /></section>
    </div>`;
  }

  function byRole(a, b) {
    return ROLES.indexOf(a.role) - ROLES.indexOf(b.role) || a.slot.localeCompare(b.slot, "en", { numeric: true });
  }

  // Budgets with what is used of them.
  function Meters({ model }) {
    const { usd: spent, cap_usd: cap, seconds, minutes } = model.run;
    const budget = [...model.tasks.values()].reduce((sum, task) => sum + (task.budget ?? 0), 0);
    const done = [...model.tasks.keys()].reduce((sum, task) => sum + model.finished(task).length, 0);
    const workers = [...model.workers.values()];
    const busy = workers.filter((worker) => worker.leases > 0).length;
    const up = workers.filter((worker) => worker.state === "up").length;
    return html`<section class="meters" aria-label="Budgets">
      <${Meter} name="attempts" used=${done} of=${budget} text=${`${count(done)} of ${count(budget)}`} />
      <${Meter} name="spend" used=${spent} of=${cap} text=${`${usd(spent)}${isNumber(cap) ? ` of ${usd(cap)}` : ", no cap"}`} />
      <${Meter} name="time" used=${isNumber(seconds) ? seconds / 60 : null} of=${minutes} text=${`${clock(seconds)}${isNumber(minutes) ? ` of ${clock(minutes * 60)}` : ""}`} />
      <${Meter} name="workers with a lease" used=${busy} of=${up} text=${`${busy} of ${up}`} />
    </section>`;
  }

  function Meter({ name, used, of, text }) {
    const hasBar = isNumber(used) && isNumber(of) && of > 0;
    return html`<div class="meter"><span class="soft">${name}</span><b>${text}</b>
      ${hasBar ? html`<progress max="1" value=${Math.min(1, used / of)} aria-label=${name}></progress>` : ""}</div>`;
  }

  function Actors({ model, workers }) {
    return html`<div class="wide"><table class="list cards">
      <thead><tr><th>slot</th><th>state</th><th>does</th><th class="number">for</th><th class="number">leases</th><th class="number">heartbeat</th><th class="number">starts</th><th>device</th></tr></thead>
      <tbody>${workers.map((worker) => html`<tr key=${worker.slot} class=${worker.state === "up" ? "" : "is-down"}>
        <td data-label="slot"><b>${worker.slot}</b>${worker.host ? html` <span class="soft">${worker.host}</span>` : ""}</td>
        <td data-label="state"><span class=${`state ${worker.state}`}>${words(worker.state)}</span>${worker.quarantine ? html`<br /><span class="bad-text">quarantined: ${worker.quarantine}</span>` : ""}</td>
        <td data-label="does">${worker.doing || "waits for work"}</td>
        <td data-label="for" class="number">${isNumber(worker.since) && worker.state === "up" && model.run.status === "running" ? clock(model.now() - worker.since) : STARK.format.DASH}</td>
        <td data-label="leases" class="number">${count(worker.leases)}</td>
        <td data-label="heartbeat" class="number">${isNumber(worker.rtt_ms) ? `${worker.rtt_ms.toFixed(worker.rtt_ms < 10 ? 1 : 0)} ms` : STARK.format.DASH}</td>
        <td data-label="starts" class=${`number ${worker.starts > 1 ? "" : "hide-narrow"}`}>${count(worker.starts)}${worker.starts > 1 && worker.how ? html` <span class="soft">(${worker.how})</span>` : ""}</td>
        <td data-label="device" class=${worker.device ? "" : "hide-narrow"}>${worker.device || STARK.format.DASH}</td></tr>`)}</tbody>
    </table></div>`;
  }

  function Events({ model }) {
    const [isWhole, showWhole] = useState(false);
    const events = [...model.events.values()].sort((a, b) => b.id - a.id);
    if (!events.length) return html`<p class="empty">Nothing has happened yet.</p>`;
    const shown = isWhole ? events : events.slice(0, EVENTS_SHOWN);
    return html`<ol class="events">${shown.map((event) => html`<li key=${event.id}>
        <time>${hour(event.at)}</time> <b>${words(event.what)}</b> <span>${event.subject}</span> <span class="soft">${event.detail}</span></li>`)}</ol>
      ${shown.length < events.length && html`<button type="button" onClick=${() => showWhole(true)}>Show all ${plural(events.length, "event")}</button>`}`;
  }

  STARK.FleetView = FleetView;
}
