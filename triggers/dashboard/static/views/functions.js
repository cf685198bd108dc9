// Every function of the lab: what calls it, what it takes and answers, and a form that calls it.

import { PROGRAM, age, counted, cut, fill, h, stampOf } from "../dom.js";
import { action, ask } from "../actions.js";
import { call, get } from "../lab.js";
import { Table } from "../table.js";

const EXAMPLE = `from nightjar import Request, Response, function


class Greet(Request):
    name: str = "you"


class Greeting(Response):
    text: str


@function("hello::greet", role="viewer")
async def greet(request: Greet) -> Greeting:
    """Greet somebody."""
    return Greeting(text=f"Hello, {request.name}!")
`;
const LONG_TEXT = 1000; // a string that may be longer gets a field of several lines

export const functions = {
  title: "Functions",
  open(place, page) {
    const search = h("input", { type: "search", placeholder: "Filter: name, role, trigger", "aria-label": "filter", value: page.address.q ?? "", input: () => page.go({ q: search.value }, { replace: true }) });
    const note = h("p", { class: "dim note", role: "status" });
    const left = h("div", { class: "list" });
    const right = h("section", { class: "panel details", id: "details", hidden: true });
    place.append(h("div", { class: "bar" }, search, own(), note), h("div", { class: "split" }, left, right));
    let [known, schedules, calls, shown] = [[], [], {}, null];
    const table = new Table(left, {
      label: "functions",
      key: ({ name }) => name,
      open: ({ name }) => page.go({ function: name }),
      rowClass: ({ name }) => (name === page.address.function ? "chosen" : null),
    });

    function draw() {
      const { q = "", function: chosen } = page.address;
      const words = q.toLowerCase().split(/\s+/).filter(Boolean);
      const columns = columnsOf(page).filter(({ id }) => !known.some(({ name }) => name === chosen) || ["name", "next"].includes(id));
      const rows = known.map((declared) => rowOf(declared, schedules.find(({ function: name }) => name === declared.name), calls[declared.name], chosen))
        .filter(({ name, description, triggers, role }) => words.every((word) => `${name} ${description} ${triggers} ${role}`.toLowerCase().includes(word)));
      note.textContent = known.length ? counted(rows.length, "function") : "reading";
      table.show({ columns, rows, empty: known.length ? "No function matches this filter." : "Reading." });
      const declared = known.find(({ name }) => name === chosen);
      right.hidden = declared === undefined;
      if (declared !== undefined && shown?.name !== chosen) shown = details(right, declared, page); // what is typed in its form stays
      if (declared === undefined) shown = null;
      shown?.clock(schedules.find(({ function: name }) => name === chosen));
    }

    draw();
    return {
      every: 10000,
      rest: 5000,
      touches: ({ type }) => type.startsWith("cron."),
      read() {
        return Promise.all([known.length ? known : get("/api/function/list").then(({ functions: found }) => found), get("/api/cron/list"), call("/api/function/calls", {})]);
      },
      show([listed, clock, tallies]) {
        [known, schedules, calls] = [listed, clock.functions, tallies.functions];
        draw();
      },
      moved: draw,
      end: () => table.end(),
    };
  },
};

// How to add a function, with one that can be copied.
function own() {
  return h("details", { class: "own" }, h("summary", {}, "Add yours"),
    h("p", {}, "It is one file. This one, ", h("code", {}, "mine/hello.py"), ", works as it is:"), h("pre", { tabindex: "0" }, EXAMPLE),
    h("p", {}, "The lab reads it when it starts: ", h("code", {}, `${PROGRAM} up --functions mine`), "; then ", h("code", {}, `${PROGRAM} call hello::greet --name owl`)));
}

function rowOf({ name, description, triggers, role }, schedule, { calls = null, errors = null, last_at: last = null } = {}, chosen) {
  return { name, description, triggers: triggers.join(", "), role: role.join(", "), calls, errors, last, next: schedule?.next_fire ?? null, isPaused: Boolean(schedule?.paused_since), chosen: name === chosen };
}

function columnsOf(page) {
  return [
    { id: "name", title: "Function", width: 216, wide: Boolean(page.address.function), sort: (row) => row.name, cell: ({ name }) => h("a", { class: "cut", href: page.link({ function: name }), title: name }, name) },
    { id: "role", title: "Role", about: "who may call it", width: 124, sort: (row) => row.role, cell: ({ role }) => cut(role) },
    { id: "triggers", title: "Triggers", wide: true, cell: ({ triggers }) => cut(triggers) },
    { id: "calls", title: "Calls", about: "since the web process started", width: 72, number: true, sort: (row) => row.calls, cell: ({ calls, errors }) => (calls ? h("span", { title: `${errors} refused or failed` }, calls.toLocaleString("en")) : "") },
    { id: "last", title: "Last", about: "time since its last call", width: 74, number: true, sort: (row) => row.last, cell: ({ last }) => (last === null ? "" : age(stampOf(last))) },
    { id: "next", title: "Next firing", width: 92, number: true, sort: (row) => row.next, cell: ({ next, isPaused }) => (isPaused ? "paused" : next === null ? "" : age(next)) },
  ];
}

// What the chosen function is, with a form; answers how to show its schedule.
function details(place, declared, page) {
  const { name, description, triggers, role, lane, writes, request, response } = declared;
  const clock = h("div", { class: "clock" });
  const mayCall = page.isOperator || (role.includes("viewer") && !writes);
  place.replaceChildren(
    h("header", {}, h("h2", { class: "note" }, name), h("a", { href: page.link({ function: null }), "aria-label": "close" }, "Close")),
    h("p", {}, description),
    h("p", { class: "dim" }, `For ${role.join(", ")}${writes ? ", changes the lab" : ""}${lane === "web" ? "" : `, runs in the lane ${lane}`}.`),
    h("ul", { class: "triggers dim" }, triggers.map((trigger) => h("li", {}, trigger))),
    h("pre", {}, `${PROGRAM} call ${name}`), clock,
    mayCall ? form(declared, page) : h("div", {}, h("h3", {}, "Request"), fields(request)),
    h("h3", {}, "Answer"), fields(response, false));
  return { name, clock: (schedule) => firing(clock, schedule, page) };
}

function firing(place, schedule, page) {
  fill(place, schedule, () => (schedule === undefined ? [] : firings(schedule, page)));
}

function firings(schedule, page) {
  const { function: name, paused_since: paused, paused_reason: reason, next_fire: next, last_fired: last, fired, missed, skipped } = schedule;
  const body = () => ({ function: name });
  return [
    h("p", {}, ...(paused ? ["Paused for ", age(paused), reason ? `: ${reason}. ` : ". "] : ["Next firing ", age(next), ". "]),
      h("span", { class: "dim" }, ...(last ? ["Last ", age(last), " ago; "] : []), `${counted(fired, "firing")}, ${missed} missed, ${skipped} skipped`)),
    h("div", { class: "acts" }, ...[
      action(page, { name: "Run now", title: `Run ${name} now?`, text: "It is fired once, beside its schedule.", path: "/api/cron/run", body }),
      paused
        ? action(page, { name: "Resume", title: `Resume ${name}?`, text: "The clock fires it again at its next time.", path: "/api/cron/resume", body })
        : action(page, { name: "Pause", title: `Pause ${name}?`, text: "The clock does not fire it until it is resumed. Its other triggers go on.", path: "/api/cron/pause",
          inputs: [{ name: "reason", label: "Why", required: false }], body: ({ reason: why }) => ({ function: name, reason: why }) }),
    ].filter(Boolean)),
  ];
}

// The fields of a request or answer: names, types, and what they mean.
function fields(schema, isInput = true) {
  const found = Object.entries(schema.properties ?? {});
  if (found.length === 0) return h("p", { class: "dim" }, "No fields.");
  return h("dl", { class: "fields" }, found.flatMap(([name, field]) => [h("dt", {}, h("code", {}, name), h("span", { class: "dim" }, ` ${about(name, schema, isInput)}`)), h("dd", {}, field.description ?? "")]));
}

function about(name, schema, isInput = true) {
  const field = schema.properties[name];
  const { type, choices, isOptional } = shape(field, schema);
  const isRequired = (schema.required ?? []).includes(name);
  return [choices ? choices.join(" | ") : type, isOptional ? "or null" : null, isInput && isRequired ? "required" : null, field.default !== undefined && field.default !== null ? `default ${JSON.stringify(field.default)}` : null].filter(Boolean).join(", ");
}

// The one kind of value that a field takes, beside null.
function shape(field, schema) {
  const kinds = (field.anyOf ?? [field]).map((kind) => (kind.$ref ? { type: "object", ...schema.$defs?.[kind.$ref.split("/").at(-1)] } : kind));
  const real = kinds.filter(({ type }) => type !== "null");
  const one = real.length === 1 ? real[0] : {};
  return { type: one.type ?? real.map(({ type }) => type).join(" or "), choices: one.enum ?? (one.const === undefined ? null : [one.const]), longest: one.maxLength ?? Infinity, isOptional: real.length < kinds.length };
}

function form({ name, triggers, writes, request }, page) {
  const route = routeOf(triggers);
  const answer = h("pre", { class: "log answer", hidden: true, tabindex: "0", "aria-label": "answer" });
  if (route === null) return h("div", {}, h("h3", {}, "Request"), fields(request), h("p", { class: "dim" }, "No HTTP route that this page can call."));
  const inputs = Object.entries(request.properties ?? {}).filter(([field]) => field !== "request_id").map(([field, declared]) => [field, input(field, declared, request)]);
  const button = h("button", { class: "primary" }, "Call");
  const made = h("form", { class: "call", submit: send }, h("h3", {}, "Request"),
    inputs.map(([field, { element }]) => h("label", {}, h("span", {}, h("code", {}, field), h("span", { class: "dim" }, ` ${about(field, request)}`)), element, h("span", { class: "dim" }, request.properties[field].description ?? ""))),
    h("div", { class: "acts" }, button));

  function show(value) {
    answer.hidden = false;
    answer.textContent = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  }

  async function send(event) {
    event.preventDefault();
    let body;
    try {
      body = Object.fromEntries(inputs.map(([field, { read }]) => [field, read()]).filter(([, value]) => value !== undefined));
    } catch (problem) {
      return show(problem.message);
    }
    const path = route.path.replaceAll(/\{(\w+)\}/g, (_, field) => encodeURIComponent(body[field] ?? ""));
    const question = { title: `Call ${name}?`, text: `This changes the lab. It is sent: ${JSON.stringify(body)}`, verb: "Call", path, body: () => body, done: show };
    if (writes) return ask(question);
    button.disabled = true;
    const query = new URLSearchParams(Object.entries(body).filter(([field]) => !route.path.includes(`{${field}}`)));
    try {
      show(await (route.method === "POST" ? call(path, body) : get(`${path}?${query}`)));
    } catch ({ message, hint, status }) {
      show({ status, problem: message, hint });
    } finally {
      button.disabled = false;
    }
  }

  return h("div", {}, made, answer);
}

// Where the page calls a function: by POST, or by GET where there is nothing else.
function routeOf(triggers) {
  const routes = triggers.map((trigger) => /^(GET|POST) (\/\S*)$/.exec(trigger)).filter(Boolean).map(([, method, path]) => ({ method, path }));
  return routes.find(({ method }) => method === "POST") ?? routes[0] ?? null;
}

// A field of the form; `read` answers its value, undefined where nothing was entered.
function input(name, field, schema) {
  const { type, choices, longest } = shape(field, schema);
  const isRequired = (schema.required ?? []).includes(name);
  const example = field.examples?.[0];
  const hint = example === undefined ? "" : typeof example === "string" ? example : JSON.stringify(example);
  const options = choices ?? (type === "boolean" ? ["true", "false"] : null);
  if (options !== null) {
    const element = h("select", { name, required: isRequired }, h("option", { value: "" }, ""), options.map((option) => h("option", {}, String(option))));
    return { element, read: () => (element.value === "" ? undefined : type === "boolean" ? element.value === "true" : options.find((option) => String(option) === element.value)) };
  }
  if (type === "integer" || type === "number") {
    const element = h("input", { name, type: "number", step: type === "integer" ? "1" : "any", placeholder: hint, required: isRequired });
    return { element, read: () => (element.value === "" ? undefined : Number(element.value)) };
  }
  if (type === "string") {
    const element = longest > LONG_TEXT && longest !== Infinity ? h("textarea", { name, rows: "3", placeholder: hint, required: isRequired }) : h("input", { name, placeholder: hint, required: isRequired, autocomplete: "off" });
    return { element, read: () => (element.value === "" ? undefined : element.value) };
  }
  const element = h("textarea", { name, rows: "3", placeholder: `JSON ${hint}`, required: isRequired, spellcheck: "false" });
  return { element, read: () => (element.value.trim() === "" ? undefined : parsed(name, element.value)) };
}

function parsed(name, text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} is no JSON: a text stands in quotes, "like this"`);
  }
}
