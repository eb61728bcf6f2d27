"use strict";
// The page: its head, the run and task that are shown, and the view that the address names.
{
  const { html, useEffect, useMemo, useState } = STARK;
  const { words } = STARK.format;
  const NAMES = { report: "Report", tasks: "Tasks", tree: "Tree", best: "Best so far", fleet: "Fleet", compare: "Compare", directives: "Directives" };
  const WHOLE_RUN = ["report", "tasks", "fleet", "directives"]; // views of all tasks

  function App({ source, runs, steer, report }) {
    const [route, setRoute] = useState(() => STARK.route.read(window.location.hash));
    const [state, setState] = useState("connecting");
    const [, redraw] = useState(0);
    const runId = runs.some((run) => run.id === route.options.run) ? route.options.run : runs[0]?.id;
    const model = useMemo(() => new STARK.RunModel(), [runId]);
    useEffect(() => {
      const onHash = () => setRoute(STARK.route.read(window.location.hash));
      window.addEventListener("hashchange", onHash);
      onHash(); // the address may have changed since the first drawing
      return () => window.removeEventListener("hashchange", onHash);
    }, []);
    useEffect(() => (runId ? watch(source, runId, model, setState, redraw) : undefined), [runId]);

    const task = model.tasks.has(route.task) ? route.task : firstTask(model);
    const view = route.view || (report ? "report" : "tree");
    const app = appOf({ source, runs, runId, steer, model, task, view, route });
    useEffect(() => {
      const known = model.run?.name ?? "";
      document.title = view === "node" && route.number !== null ? `${route.number} · ${task} · STARK` : `${known || task || "STARK"} · STARK`;
      if (report) report.hidden = view !== "report";
    });
    if (!runId) return html`<main class="shell"><p class="panel empty">There is no run to show.</p></main>`;
    return html`<${Head} app=${app} runs=${runs} model=${model} task=${task} view=${view} state=${state} report=${report} route=${route} />
      <div class=${`shell ${view === "report" ? "is-report" : ""}`} role=${view === "report" ? undefined : "main"} id="main">
        <${Trouble} app=${app} state=${state} model=${model} source=${source} />
        ${model.run
          ? html`<${STARK.Headline} app=${app} model=${model} task=${task} isWhole=${WHOLE_RUN.includes(view)} /><${View} app=${app} model=${model} task=${task} view=${view} route=${route} />`
          : state !== "unauthorized" && html`<p class="panel empty" role="status">Reading the run …</p>`}
      </div>`;
  }

  // Draw at most once a frame, however many changes arrive.
  function watch(source, runId, model, setState, redraw) {
    let frame = 0;
    const draw = () => {
      frame = 0;
      redraw((count) => count + 1);
    };
    const onDelta = () => {
      if (!frame) frame = requestAnimationFrame(draw);
    };
    const stop = source.watch(runId, model, { onDelta, onState: setState });
    return () => {
      cancelAnimationFrame(frame);
      stop();
    };
  }

  function firstTask(model) {
    const running = model.attempts[0]?.task;
    return running && model.tasks.has(running) ? running : (model.tasks.keys().next().value ?? "");
  }

  function appOf({ source, runs, runId, steer, model, task, view, route }) {
    const run = runs.length > 1 ? { run: runId } : {};
    const whole = (next) => ({ task, ...next, options: { ...run, ...next.options } });
    return {
      source, runs, runId, model, canSteer: steer && !STARK.isFinished(model),
      href: (next) => STARK.route.write(whole(next)),
      go: (next) => STARK.route.go(whole(next)),
      replace: (next) => STARK.route.replace(whole(next)),
      show: (next) => STARK.route.go(whole({ view: view === "node" ? "tree" : view, ...next })),
      showRun: (id) => STARK.route.go({ view: view === "node" ? "tree" : route.view, options: { run: id } }),
      runName: (id) => runs.find((known) => known.id === id)?.name ?? id,
      submit: (directive) => source.submit(runId, directive),
    };
  }

  function Head({ app, runs, model, task, view, state, report }) {
    const tasks = [...model.tasks.values()];
    const isShown = { report: Boolean(report), tasks: tasks.length > 1 };
    const views = Object.keys(NAMES).filter((name) => isShown[name] ?? true);
    const current = view === "node" ? "tree" : view;
    return html`<header class="head">
      <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
      <div class="head-line">
        <span class="brand" aria-hidden="true">STARK</span>
        ${runs.length > 1
          ? html`<select class="run-choice" aria-label="Run" value=${app.runId} onChange=${(event) => app.showRun(event.target.value)}>${runs.map((run) => html`<option key=${run.id} value=${run.id}>${run.name}</option>`)}</select>`
          : html`<h1 class="run-name">${model.run?.name ?? runs[0]?.name}</h1>`}
        ${tasks.length === 1 && !(model.run?.name ?? "").includes(task) && html`<span class="soft">${task}</span>`}
        ${tasks.length > 1 && html`<select class="task-choice" aria-label="Task" value=${task} onChange=${(event) => app.show({ task: event.target.value })}>
          ${tasks.map((known) => html`<option key=${known.name} value=${known.name}>${known.name}${known.best != null ? ` · ${STARK.format.speedup(model.best(known.name)?.speedup)}` : ""}</option>`)}</select>`}
        <${Status} model=${model} state=${state} />
      </div>
      <nav class="views" aria-label="Views">${views.map((name) => html`<a key=${name} href=${app.href({ view: name })} aria-current=${current === name ? "page" : undefined}>${NAMES[name]}</a>`)}</nav>
    </header>`;
  }

  // The address after "#" is the route, so a link to a place in the page moves the focus instead.
  function skip(event) {
    event.preventDefault();
    const main = document.getElementById("main");
    main.tabIndex = -1;
    main.focus();
  }

  function Status({ model, state }) {
    const status = model.run?.paused && model.run.status === "running" ? "paused" : model.run?.status;
    const link = { live: "live", lost: "connection lost", connecting: "connecting", hidden: "", embedded: "", unauthorized: "no access" }[state];
    const isLive = state === "live" && !STARK.isFinished(model);
    return html`<span class="status" role="status">
      ${status && html`<span class=${`state ${status}`}>${words(status)}</span>`}
      ${link && (isLive || state !== "live") && html`<span class=${`link-state ${state}`}>${link}</span>`}
    </span>`;
  }

  function Trouble({ app, state, model, source }) {
    if (state === "unauthorized") return html`<p class="notice" role="alert"><b>This page has no access.</b> Open the address that watch printed when it started; it holds the token.</p>`;
    if (state === "lost") return html`<p class="notice" role="alert"><b>Connection lost.</b> What you see is as it was; the page tries again by itself. If watch has ended, start it again.</p>`;
    const { run } = model;
    if (source.leftOut?.length) return html`<p class="notice">${source.leftOut.join(" ")}</p>`;
    if (run?.trouble) return html`<p class="notice" role="alert">${run.trouble}</p>`;
    if (run?.status === "running" && run.is_served === false) return html`<p class="notice" role="alert"><b>No coordinator runs.</b> The run is not over: <code>supervisor.py --resume</code> goes on with it.</p>`;
    if (run?.questions?.length) return html`<p class="notice"><b>A model call waits for a person's answer:</b> <a href=${app.href({ view: "directives" })}>${run.questions.join(", ")}</a></p>`;
    if (run?.paused && run.status === "running") return html`<p class="notice">The run is <b>paused</b>: what is under way ends, no new work begins.</p>`;
    return null;
  }

  function View({ app, model, task, view, route }) {
    const shared = { app, model, task, options: route.options };
    switch (view) {
      case "node":
        return html`<${STARK.NodeView} ...${shared} number=${route.number} tab=${route.tab} />`;
      case "best":
        return html`<${STARK.BestView} ...${shared} key=${`${app.runId} ${task}`} />`;
      case "fleet":
        return html`<${STARK.FleetView} ...${shared} />`;
      case "compare":
        return html`<${STARK.CompareView} ...${shared} />`;
      case "directives":
        return html`<${STARK.DirectivesView} ...${shared} />`;
      case "tasks":
        return html`<${STARK.TasksView} ...${shared} />`;
      case "tree":
        return html`<${STARK.TreeView} ...${shared} key=${`${app.runId} ${task}`} />`;
      default:
        return null;
    }
  }

  STARK.App = App;
}
