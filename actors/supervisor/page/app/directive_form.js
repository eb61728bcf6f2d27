"use strict";
// One verb with its arguments, and the dialog before a destructive one.
{
  const { html, useEffect, useRef, useState } = STARK;

  function DirectiveForm({ app, verb, task = "", node = null, onDone }) {
    const { name, does, isDestructive, ...known } = STARK.verbs[verb];
    const fields = known.fieldsOf?.(app.model.run) ?? known.fields ?? {};
    const [values, setValues] = useState(() => startValues(fields));
    const [key] = useState(STARK.newKey);
    const [asks, setAsks] = useState(false);
    const [state, setState] = useState({});
    const send = async () => {
      setState({ isBusy: true });
      try {
        await app.submit({ key, verb, task, node, arguments: argumentsOf(fields, values) });
        onDone?.(`${name}: wanted. The list of directives shows when it is applied.`);
      } catch (error) {
        setState({ error: error.message });
      }
    };
    const onSubmit = (event) => {
      event.preventDefault();
      if (isDestructive) setAsks(true);
      else send();
    };
    const where = node === null ? "the run" : `node ${node}`;
    return html`<form class="directive-form" onSubmit=${onSubmit} aria-label=${`${name} ${where}`}>
      <p class="soft">${does}</p>
      ${Object.entries(fields).map(([field, known], index) => html`<${Field} key=${field} name=${field} known=${known} isFirst=${index === 0}
        value=${values[field]} onValue=${(value) => setValues({ ...values, [field]: value })} />`)}
      <div class="choices">
        <button type="submit" class=${isDestructive ? "destructive" : "primary"} disabled=${state.isBusy}>${name}</button>
        <button type="button" onClick=${() => onDone?.("")}>Cancel</button>
      </div>
      ${state.error && html`<p class="bad-text" role="alert">${state.error}</p>`}
      ${asks && html`<${Confirm} question=${`${name} ${where}?`} does=${does} verb=${name}
        onAnswer=${(isYes) => {
          setAsks(false);
          if (isYes) send();
        }} />`}
    </form>`;
  }

  function startValues(fields) {
    const start = (known) => (known.type === "choice" ? known.choices[0] : known.label === "attempts" ? "1" : "");
    return Object.fromEntries(Object.entries(fields).map(([field, known]) => [field, start(known)]));
  }

  function argumentsOf(fields, values) {
    const value = (field, known) => (known.type === "number" ? Number(values[field]) : values[field]);
    return Object.fromEntries(Object.entries(fields).map(([field, known]) => [field, value(field, known)]));
  }

  function Field({ name, known, value, onValue, isFirst }) {
    const first = useRef(null);
    useEffect(() => {
      if (isFirst) first.current?.focus();
    }, []);
    const onInput = (event) => onValue(event.target.value);
    const id = `field-${name}`;
    const input = known.type === "choice"
      ? html`<select id=${id} ref=${first} value=${value} onChange=${onInput}>${known.choices.map((choice) => html`<option key=${choice} value=${choice}>${choice}</option>`)}</select>`
      : known.type === "long"
        ? html`<textarea id=${id} ref=${first} rows="6" required=${known.required} value=${value} onInput=${onInput} spellcheck=${false}></textarea>`
        : html`<input id=${id} ref=${first} type=${known.type} min=${known.min} max=${known.max} step=${known.step} required=${known.required} value=${value} onInput=${onInput} />`;
    return html`<div class="field"><label for=${id}>${known.label}</label>${input}</div>`;
  }

  function Confirm({ question, does, verb, onAnswer }) {
    const dialog = useRef(null);
    useEffect(() => {
      dialog.current.showModal();
    }, []);
    return html`<dialog ref=${dialog} aria-labelledby="confirm-title" onCancel=${() => onAnswer(false)}>
      <h2 id="confirm-title">${question}</h2>
      <p>${does}</p>
      <div class="choices">
        <button type="button" onClick=${() => onAnswer(false)}>Cancel</button>
        <button type="button" class="destructive" onClick=${() => onAnswer(true)}>${verb}</button>
      </div>
    </dialog>`;
  }

  // The verbs of one node, above its tabs.
  function NodeActions({ app, task, node }) {
    const [verb, setVerb] = useState("");
    const [said, say] = useState("");
    useEffect(() => {
      setVerb("");
      say("");
    }, [task, node.number]);
    const shown = Object.entries(STARK.verbs).filter(([, known]) => known.of === "node" && (known.isShown?.(node) ?? true));
    return html`<section class="actions" aria-label="Steer this node">
      <div class="choices" role="group">${shown.map(([name, known]) => html`<button type="button" key=${name} aria-pressed=${verb === name ? "true" : "false"}
        onClick=${() => {
          setVerb(verb === name ? "" : name);
          say("");
        }}>${known.name}</button>`)}</div>
      ${verb && html`<${DirectiveForm} key=${verb} app=${app} verb=${verb} task=${task} node=${node.number}
        onDone=${(text) => {
          setVerb("");
          say(text);
        }} />`}
      <p role="status" class="said">${said}</p>
    </section>`;
  }

  STARK.DirectiveForm = DirectiveForm;
  STARK.NodeActions = NodeActions;
}
