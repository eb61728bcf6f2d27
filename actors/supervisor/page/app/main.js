"use strict";
// The beginning: where the run comes from, and the first drawing.
{
  const { html, render } = STARK;

  async function main() {
    const root = document.getElementById("app");
    const data = document.getElementById("data");
    const source = data ? new STARK.EmbeddedSource(data) : new STARK.LiveSource();
    const report = data ? document.querySelector("main.report") : null;
    await begin(root, source, report);
  }

  async function begin(root, source, report) {
    try {
      const { runs, steer } = await source.begin();
      render(html`<${STARK.App} source=${source} runs=${runs} steer=${steer} report=${report} />`, root);
    } catch (error) {
      render(html`<main class="shell"><${Failure} error=${error} isLive=${source.kind === "live"} /></main>`, root);
      // A server that is not up yet comes up; a token that is wrong stays wrong.
      if (source.kind === "live" && !(error instanceof STARK.UnauthorizedError)) setTimeout(() => begin(root, source, report), 2000);
    }
  }

  function Failure({ error, isLive }) {
    if (error instanceof STARK.UnauthorizedError) {
      return html`<p class="notice" role="alert"><b>This page has no access.</b> Open the address that watch printed when it started; it holds the token.</p>`;
    }
    return html`<p class="notice" role="alert">${isLive ? "The server does not answer; trying again. " : ""}${error.message}</p>`;
  }

  main();
}
