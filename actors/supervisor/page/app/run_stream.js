"use strict";
// The changes of one run, for as long as the tab is seen: one EventSource for all tabs of the run.
// A browser opens six connections to a host at most, and each stream holds one.  So one tab reads
// the stream and tells the others, and a lock passes this on when that tab is hidden or closed.
{
  const RETRY_MS = [500, 1000, 2000, 4000, 8000];

  class RunStream {
    constructor(source, run, model, listener) {
      this.source = source;
      this.run = run;
      this.model = model;
      this.listener = listener; // onDelta(), onState("live" | "lost" | "hidden" | "unauthorized")
      this.events = null; // the EventSource, in the tab that reads
      this.channel = null;
      this.giveUpLock = null; // ends the wait for the lock, or the hold of it
      this.isReader = false; // this tab has the lock
      this.retries = 0;
      this.timer = 0;
      this.isStopped = false;
      this.onVisibility = () => (document.hidden ? this.pause() : this.resume());
    }

    start() {
      document.addEventListener("visibilitychange", this.onVisibility);
      if (document.hidden) this.listener.onState("hidden");
      else this.resume();
    }

    stop() {
      this.isStopped = true;
      document.removeEventListener("visibilitychange", this.onVisibility);
      this.pause();
    }

    pause() {
      clearTimeout(this.timer);
      this.closeEvents();
      this.channel?.close();
      this.channel = null;
      this.giveUpLock?.();
      this.giveUpLock = null;
      this.isReader = false;
      if (!this.isStopped) this.listener.onState("hidden");
    }

    async resume() {
      if (this.isStopped || this.channel) return;
      this.channel = new BroadcastChannel(`stark ${this.run}`);
      this.channel.onmessage = (message) => this.hear(message.data);
      const channel = this.channel;
      if (!(await this.catchUp()) || this.channel !== channel) return;
      this.becomeReader(channel);
    }

    // Read what was missed; later again where the server does not answer.
    async catchUp() {
      try {
        const delta = await this.source.since(this.run, this.model.seq);
        // A smaller number means another run.db: what is known of the old one is void.
        if (delta.seq < this.model.seq) {
          this.model.reset();
          return this.catchUp();
        }
        this.take(delta);
        return true;
      } catch (error) {
        this.fail(error);
        return false;
      }
    }

    // Wait for the lock; the tab that has it opens the stream.
    becomeReader(channel) {
      if (!navigator.locks) {
        this.giveUpLock = () => {};
        this.isReader = true;
        this.openEvents();
        return;
      }
      const abort = new AbortController();
      this.giveUpLock = () => abort.abort();
      const hold = () => {
        if (this.channel !== channel) return undefined;
        this.isReader = true;
        this.openEvents();
        return new Promise((release) => {
          this.giveUpLock = release;
        });
      };
      navigator.locks.request(`stark ${this.run}`, { signal: abort.signal }, hold).catch(() => {
        // The wait was given up because the tab was hidden.
      });
    }

    openEvents() {
      const run = encodeURIComponent(this.run);
      this.events = new EventSource(`/api/run/${run}/stream?seq=${this.model.seq}`);
      this.events.addEventListener("delta", (event) => {
        const delta = JSON.parse(event.data);
        this.channel?.postMessage({ from: this.model.seq, delta });
        this.take(delta);
      });
      this.events.onopen = () => {
        this.tell("live");
      };
      this.events.onerror = () => this.fail(new Error("the stream ended"));
    }

    closeEvents() {
      this.events?.close();
      this.events = null;
    }

    // A message of the tab that reads.  Where a change between was missed, ask for all of them.
    hear({ from, delta, state }) {
      if (state) this.listener.onState(state);
      if (!delta) return;
      if (from > this.model.seq || delta.seq < this.model.seq) this.catchUp();
      else this.take(delta);
    }

    take(delta) {
      this.retries = 0;
      this.model.apply(delta);
      this.listener.onState("live");
      this.listener.onDelta();
    }

    tell(state) {
      this.listener.onState(state);
      this.channel?.postMessage({ state });
    }

    fail(error) {
      this.closeEvents();
      if (this.isStopped || !this.channel) return;
      const state = error instanceof STARK.UnauthorizedError ? "unauthorized" : "lost";
      if (this.isReader) this.tell(state);
      else this.listener.onState(state);
      if (state === "unauthorized") return;
      const wait = RETRY_MS[Math.min(this.retries, RETRY_MS.length - 1)];
      this.retries += 1;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.again(), wait);
    }

    // The tab that holds the lock opens its stream again; another one waits for the lock.
    async again() {
      const channel = this.channel;
      if (this.isStopped || !channel || !(await this.catchUp()) || this.channel !== channel) return;
      if (this.isReader && !this.events) this.openEvents();
      else if (!this.giveUpLock) this.becomeReader(channel);
    }
  }

  STARK.RunStream = RunStream;
}
