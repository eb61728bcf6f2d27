"use strict";
// The bodies of one node: asked for when they are looked at, and again when its verdict changes.
{
  const { useEffect, useState } = STARK;
  const MOST_KEPT = 60;
  const kept = new Map();

  // Return {details, error}: both undefined while the answer is under way.
  function useNodeDetails(app, task, number, stage) {
    const node = app.model.node(task, number);
    const state = node ? [node.verdict, node.speedup, node.confirmed, node.us].join() : stage;
    const key = `${app.runId} ${task} ${number} ${state}`;
    const [answer, setAnswer] = useState({});
    useEffect(() => {
      if (number === null || number === undefined) return undefined;
      let isWanted = true;
      fetchOnce(app, task, number, key).then(
        (details) => isWanted && setAnswer({ key, details }),
        (error) => isWanted && setAnswer({ key, error }),
      );
      return () => {
        isWanted = false;
      };
    }, [key]);
    return answer.key === key ? answer : { details: kept.get(key)?.settled };
  }

  function fetchOnce(app, task, number, key) {
    if (!kept.has(key)) {
      const promise = app.source.node(app.runId, task, number);
      const entry = { promise, settled: undefined };
      kept.set(key, entry);
      promise.then((details) => (entry.settled = details), () => kept.delete(key)); // asked again next time
      if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
    }
    return kept.get(key).promise;
  }

  STARK.useNodeDetails = useNodeDetails;
}
