// What an operator does on the page: one function call each, after a question that says what will happen.

import { h } from "./dom.js";
import { call } from "./lab.js";

// A button that asks and then calls; null for readers who are no operators.
// Afterwards the view is read again, unless something else is to be `done`.
// `inputs` are { name, label, value?, required?, options? }; `body(given)` makes the request of what was entered.
export function action(page, { name, title, text, verb, path, body, inputs = [], done = () => page.view?.source?.now(), kind = "" }) {
  if (!page.isOperator) return null;
  return h("button", { type: "button", class: `action ${kind}`, click: () => ask({ title, text, verb: verb ?? name, path, body, inputs, done }) }, name);
}

export function ask({ title, text, verb, path, body, inputs = [], done = () => {} }) {
  const dialog = document.getElementById("asking");
  const problem = h("p", { class: "problem", role: "alert" });
  const fields = inputs.map((input) => [input.name, field(input)]);
  const button = h("button", { class: "primary" }, verb);
  const form = h("form", { submit: send },
    h("h2", { id: "asking-title" }, title),
    h("p", {}, text),
    ...fields.map(([name, element]) => h("label", {}, inputs.find((input) => input.name === name).label, element)),
    problem,
    h("div", { class: "choices" }, h("button", { type: "button", click: () => dialog.close() }, "Cancel"), button));

  async function send(event) {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      const given = Object.fromEntries(fields.map(([name, element]) => [name, element.value]));
      const answer = await call(path, body(given));
      dialog.close();
      done(answer);
    } catch (found) {
      problem.textContent = [found.message, found.hint].filter(Boolean).join(": ");
    } finally {
      button.disabled = false;
    }
  }

  dialog.replaceChildren(form);
  dialog.showModal();
}

function field({ name, value = "", required = true, options = null }) {
  if (options === null) return h("input", { name, value, required });
  return h("select", { name }, options.map((option) => h("option", { value: option, selected: option === value }, option)));
}
