"use strict";
// Model calls that wait for a person (`--ask-person`): what the agent asks, as plain text.
{
  const { html, useState } = STARK;

  function Questions({ app, model }) {
    const names = model.run?.questions ?? [];
    if (!names.length || !app.source.question) return null;
    return html`<section class="panel" aria-labelledby="questions-title"><h2 id="questions-title">Questions to a person</h2>
      <p class="soft">A model call waits for each of them. Answer here, with <code>steer.py</code>, or by a file in <code>questions/</code> of the run folder; after its time the model is asked.</p>
      ${names.map((name) => html`<${Question} key=${name} app=${app} name=${name} />`)}
    </section>`;
  }

  // The text is fetched when it is opened: a request may be long.
  function Question({ app, name }) {
    const [found, setFound] = useState({});
    const onToggle = async (event) => {
      if (!event.target.open || found.text !== undefined) return;
      try {
        setFound({ text: (await app.source.question(app.runId, name)).text });
      } catch (error) {
        setFound({ error: error.message });
      }
    };
    return html`<details class="question" onToggle=${onToggle}><summary>${name}</summary>
      ${found.error && html`<p class="bad-text" role="alert">${found.error}</p>`}
      ${found.text !== undefined && html`<${STARK.TextView} text=${found.text} label=${`Question ${name}`} isWrapped=${true} hasNumbers=${false} />`}
    </details>`;
  }

  STARK.Questions = Questions;
}
