"use strict";
// The run behind `watch`: JSON over HTTP, and one stream of changes.
{
  class UnauthorizedError extends Error {}

  class LiveSource {
    constructor() {
      this.kind = "live";
    }

    async begin() {
      await this.spendToken();
      return this.get("/api/runs");
    }

    // The printed address carries the token after "#", which no server log and no referrer sees.
    // It is exchanged for a cookie and removed from the address bar.
    async spendToken() {
      const found = window.location.hash.match(/^#token=([^&/]+)(.*)$/);
      if (!found) return;
      const rest = found[2].replace(/^&/, "");
      window.history.replaceState(null, "", window.location.pathname + (rest ? `#${rest}` : ""));
      await this.post("/api/session", { token: decodeURIComponent(found[1]) });
    }

    async get(path) {
      return (await this.request(path, {})).json();
    }

    async post(path, body) {
      const headers = { "Content-Type": "application/json" };
      return this.request(path, { method: "POST", headers, body: JSON.stringify(body) });
    }

    async request(path, options) {
      const response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
      if (response.status === 401 || response.status === 403) throw new UnauthorizedError(path);
      if (!response.ok) throw new Error(await reasonOf(response));
      return response;
    }

    watch(run, model, listener) {
      const stream = new STARK.RunStream(this, run, model, listener);
      stream.start();
      return () => stream.stop();
    }

    since(run, seq) {
      return this.get(`/api/run/${encodeURIComponent(run)}/since?seq=${seq}`);
    }

    node(run, task, number) {
      const path = [run, "node", task, number].map(encodeURIComponent).join("/");
      return this.get(`/api/run/${path}`);
    }

    question(run, name) {
      return this.get(`/api/run/${encodeURIComponent(run)}/question/${encodeURIComponent(name)}`);
    }

    async submit(run, directive) {
      const response = await this.post(`/api/run/${encodeURIComponent(run)}/directives`, directive);
      return response.json();
    }
  }

  async function reasonOf(response) {
    const text = await response.text();
    try {
      const { error, detail } = JSON.parse(text);
      return error || detail || text;
    } catch {
      return text.slice(0, 300) || `the server answered ${response.status}`;
    }
  }

  STARK.LiveSource = LiveSource;
  STARK.UnauthorizedError = UnauthorizedError;
}
