"use strict";
// The verbs of a directive: what each does, which arguments it takes, which of them is confirmed.
{
  // An open question is chosen by its name; the questions above the form show their texts.
  function answerFields(run) {
    const names = run?.questions ?? [];
    const question = names.length ? { type: "choice", choices: names, label: "question" } : { type: "text", required: true, label: "question" };
    return { question, text: { type: "long", required: true, label: "reply" } };
  }

  const NUMBER = { type: "number", min: 1, step: 1, required: true };

  // `fields` name the directive's arguments; `isDestructive` ones are confirmed in a dialog.
  STARK.verbs = {
    pause: { of: "run", name: "Pause", does: "No new work begins; work that is under way ends normally." },
    go: { of: "run", name: "Go on", does: "A paused run begins new work again." },
    budget: { of: "run", name: "Budget", does: "Changes the attempts that each task gets.", fields: { attempts: { ...NUMBER, label: "attempts" } } },
    cap: { of: "run", name: "Cap", does: "Changes the dollars that model calls may take together.", fields: { usd: { type: "number", min: 0, step: "any", required: true, label: "USD" } } },
    finish: { of: "run", name: "Finish", does: "Ends the search now: the best node is confirmed, the rest of the budget is not used.", isDestructive: true },
    answer: { of: "run", name: "Answer", does: "Answers a model call by hand.", fieldsOf: answerFields },
    pin: { of: "node", name: "Pin", does: "The policy prefers this node.", isShown: (node) => !node.pinned },
    unpin: { of: "node", name: "Unpin", does: "The policy treats this node as any other again.", isShown: (node) => node.pinned },
    boost: { of: "node", name: "Boost", does: "The next attempts grow this node.", fields: { count: { ...NUMBER, max: 1000, label: "attempts" } } },
    prune: { of: "node", name: "Prune", does: "This node and its subtree are not grown any more; it can be undone.", isDestructive: true, isShown: (node) => !node.pruned && node.number > 0 },
    unprune: { of: "node", name: "Undo prune", does: "This node and its subtree may grow again.", isShown: (node) => node.pruned },
    advise: { of: "node", name: "Advise", does: "The planner reads this text when it grows this node or its subtree; empty withdraws it. Results are marked as helped by a person.", fields: { text: { type: "long", label: "advice" }, scope: { type: "choice", choices: ["subtree", "node"], label: "for" } } },
    inject: { of: "node", name: "Inject", does: "Your source becomes a child of this node and is judged like any other.", fields: { source: { type: "long", required: true, label: "Python file with ModelNew" }, text: { type: "text", label: "note" } } },
    reject: { of: "node", name: "Reject", does: "This node counts as rejected from now on.", isDestructive: true, isShown: (node) => node.number > 0 && node.verdict === "correct", fields: { text: { type: "text", required: true, label: "reason" } } },
  };

  // A key of this wish: sent again after a lost answer, it takes effect once.
  STARK.newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
