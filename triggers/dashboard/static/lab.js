// Speaks to the lab: calls its functions, and follows its events however often the connection is cut.

import { PROGRAM, heardAt } from "./dom.js";

const RETRY_MS = 2000;
const REPEATS = 3; // of a request that came while the lab was busy with this reader's others
const LONGEST_WAIT_S = 5;

const SECRET = "nightjar-page"; // where the session's second secret is kept: pages of other ports cannot read it

export class Problem extends Error {
  constructor(detail, hint, status, retryAfter = null) {
    super(detail);
    this.hint = hint ?? "";
    this.status = status ?? null;
    this.retryAfter = retryAfter; // seconds, where the same request may be answered then
  }
}

let unknown = () => {};
let session = 0; // counts the sign-ins: what was asked before the last one says nothing of the reader now

// Whom to tell that the reader is nobody whom the lab knows, or not any more.
export function whenUnknown(tell) {
  unknown = tell;
}

async function answer(path, options, repeats = REPEATS) {
  const sent = session;
  try {
    return await asked(path, options);
  } catch (problem) {
    if (problem.status === 401 && sent === session) unknown(problem);
    const { status, retryAfter } = problem;
    if (status !== 429 || repeats === 0 || retryAfter === null || retryAfter > LONGEST_WAIT_S) throw problem;
    await new Promise((done) => setTimeout(done, retryAfter * 1000));
    return answer(path, options, repeats - 1);
  }
}

async function asked(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Problem("the web process does not answer", `start the lab with ${PROGRAM} up`);
  }
  heardAt(response.headers.get("date"));
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Problem(problem.detail ?? `HTTP ${response.status}`, problem.hint, response.status, problem.retry_after);
}

export async function get(path) {
  return (await answer(path)).json();
}

export async function picture(path) {
  return (await answer(path)).blob();
}

// Calls a function by POST, as everybody does.
export async function call(path, body) {
  return (await answer(path, posting(body))).json();
}

function posting(body) {
  const headers = { "content-type": "application/json", ...ours() };
  return { method: "POST", headers, body: JSON.stringify(body) };
}

// What shows that a write is this page's: the cookie alone goes to every port of the host.
function ours() {
  const secret = localStorage.getItem(SECRET);
  return secret === null ? {} : { "x-nightjar-page": secret };
}

// Signs in with { token } or { code }, and answers who is signed in then; a wrong one is a problem of its own.
export async function signIn(shown) {
  const { page, ...reader } = await (await asked("/api/session", posting(shown))).json();
  localStorage.setItem(SECRET, page);
  session += 1;
  return reader;
}

// Who is signed in; null: nobody.
export async function signedIn() {
  try {
    const reader = await (await asked("/api/session")).json();
    return reader.signed_in ? reader : null;
  } catch (problem) {
    if (problem.status === 401) return null;
    throw problem;
  }
}

export async function signOut() {
  await asked("/api/session", { method: "DELETE", headers: ours() });
  localStorage.removeItem(SECRET);
}

// A page that the browser keeps for its Back button would hold a connection: browsers open six to one lab.
function streamOf(path) {
  const source = new EventSource(path);
  addEventListener("pagehide", () => source.close(), { once: true });
  return source;
}

addEventListener("pageshow", ({ persisted }) => persisted && location.reload());

// Tells what a run has printed and reported, each time that changes, until it has ended; answers how to end that.
// `refused` is called where the lab refuses to go on.
export function followRun(id, told, refused) {
  const source = streamOf(`/api/experiment/${encodeURIComponent(id)}/log?follow=true`);
  source.addEventListener("log", (message) => {
    const lines = JSON.parse(message.data);
    if (lines.finished) source.close();
    told(lines);
  });
  source.addEventListener("error", () => source.readyState === EventSource.CLOSED && refused());
  return () => source.close();
}

// Tells every event once and in order: the newest `last` first, then what happens.
// `reset` says that events are missing, `changed` how the connection is: live, or not; once `ended`, there is none.
export function follow({ ended, last, told, reset, changed }) {
  const types = document.querySelector("meta[name=event-types]").content.split(" ");
  let seen = null;

  function open() {
    if (ended.aborted) return;
    const source = streamOf(seen === null ? `/api/events?last=${last}` : `/api/events?since=${seen}`);
    ended.addEventListener("abort", () => source.close(), { once: true });
    source.addEventListener("open", () => changed(true));
    source.addEventListener("error", () => {
      changed(false);
      // The browser comes back by itself, with Last-Event-ID, unless it was refused.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, RETRY_MS);
    });
    source.addEventListener("reset", (message) => reset(JSON.parse(message.data)));
    for (const type of types) {
      source.addEventListener(type, (message) => {
        if (seen !== null && !follows(message.lastEventId, seen)) return;
        seen = message.lastEventId;
        told(JSON.parse(message.data));
      });
    }
  }

  open();
}

function follows(one, other) {
  const [a, b] = [one, other].map((id) => id.split("-").map(Number));
  return a[0] > b[0] || (a[0] === b[0] && (a[1] ?? 0) > (b[1] ?? 0));
}
