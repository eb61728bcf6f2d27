"use strict";
// The runs beside the one that is shown: read when a view compares them, and every few seconds.
{
  const { useEffect, useState } = STARK;
  const EVERY_MS = 5000;
  const models = new Map(); // run -> RunModel

  // Return [{id, model}] of all runs but the one that is shown.
  function useOtherRuns(app) {
    const [, redraw] = useState(0);
    const ids = app.runs.map((run) => run.id).filter((id) => id !== app.runId);
    useEffect(() => {
      if (!ids.length) return undefined;
      let isWanted = true;
      let timer = 0;
      const read = async () => {
        if (!document.hidden) await Promise.all(ids.map((id) => refresh(app.source, id)));
        if (!isWanted) return;
        redraw((count) => count + 1);
        timer = setTimeout(read, EVERY_MS);
      };
      read();
      return () => {
        isWanted = false;
        clearTimeout(timer);
      };
    }, [ids.join()]);
    return ids.filter((id) => models.get(id)?.run).map((id) => ({ id, model: models.get(id) }));
  }

  async function refresh(source, id) {
    if (!models.has(id)) models.set(id, new STARK.RunModel());
    const model = models.get(id);
    try {
      const delta = await source.since(id, model.seq);
      if (delta.seq < model.seq) model.reset(); // its run.db was replaced: all of it next time
      else model.apply(delta);
    } catch {
      // The run that is shown reports a lost connection; this one is read again in a moment.
    }
  }

  STARK.useOtherRuns = useOtherRuns;
}
