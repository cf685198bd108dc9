// Who reads the page: the lab is shown to whoever may read it, everybody else gets the form where one signs in.
// The link of `nightjar open` signs in, too: its code stands behind #sign-in= and works once.

import { get, signedIn, signIn, signOut, whenUnknown } from "./lab.js";
import { open } from "./page.js";

const RETRY_MS = 2000;
const form = document.getElementById("sign-in");
const [why, complaint] = [form.querySelector(".why"), form.querySelector(".problem")];
const [input, button] = [document.getElementById("token"), form.querySelector("button")];
const [who, visit] = ["who", "visit"].map((id) => document.getElementById(id));
const connection = document.getElementById("connection");
const trouble = document.getElementById("trouble");
let close = null; // ends what is shown of the lab
let role = null; // of the reader for whom it is shown

// Asks who is signed in, and shows what they may see.
async function look() {
  try {
    admit(await get("/api/session"));
  } catch (problem) {
    if (problem.status === 401 || close !== null) return; // the form is there; or the panels tell what is wrong
    [trouble.textContent, trouble.hidden] = [sentence(problem), !form.hidden];
    setTimeout(look, RETRY_MS);
  }
}

// Signs in with the code in the address, if there is one, and takes it out of the address; then shows the lab.
// Whoever is signed in is asked first: the link may be somebody else's.
async function arrive() {
  const code = new URLSearchParams(location.hash.slice(1)).get("sign-in");
  if (code === null) return look();
  history.replaceState(null, "", location.pathname);
  try {
    const reader = await signedIn();
    if (reader !== null && !confirm(`You are ${reader.name} (${reader.role}). Sign in again with this link?`)) return look();
    admit(await signIn({ code }));
  } catch (problem) {
    await look();
    [trouble.textContent, trouble.hidden] = [sentence(problem), false];
  }
}

function admit(reader) {
  if (!reader.may_read) {
    signOut().catch(() => {}); // its session opens nothing here
    shut("This page asks for another token.");
    complain(`This page needs the viewer role; ${reader.name} has the role ${reader.role}.`);
    return;
  }
  trouble.hidden = form.hidden = true;
  who.hidden = !reader.signed_in;
  visit.hidden = reader.signed_in;
  who.querySelector("b").textContent = reader.name === reader.role ? reader.name : `${reader.name} (${reader.role})`;
  if (role !== reader.role) close = void close?.(); // another role sees other controls
  role = reader.role;
  close ??= open({ reader, changed: (live) => live || look() });
}

// Takes everything of the lab off the page.
function shut(reason) {
  close?.();
  close = null;
  trouble.hidden = who.hidden = visit.hidden = connection.hidden = true;
  who.querySelector("b").textContent = "";
  why.textContent = reason;
  complain("");
  form.hidden = false;
  input.focus();
}

function complain(text) {
  complaint.textContent = text;
}

function sentence({ message, hint }) {
  return [message, hint].filter(Boolean).map((text) => `${text[0].toUpperCase()}${text.slice(1)}.`).join(" ");
}

whenUnknown((problem) => {
  if (close !== null) shut(`Signed out: ${problem.message}.`);
  else if (form.hidden) shut(sentence({ message: problem.message }));
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  const token = input.value;
  input.value = ""; // it stays nowhere on the page, right or wrong
  button.disabled = true;
  complain("");
  try {
    admit(await signIn({ token }));
  } catch (problem) {
    complain(sentence(problem));
  } finally {
    button.disabled = false;
    if (!form.hidden) input.focus();
  }
});

who.querySelector("button").addEventListener("click", async () => {
  try {
    await signOut();
    shut("You are signed out.");
    look(); // an open lab is shown all the same
  } catch (problem) {
    [trouble.textContent, trouble.hidden] = [`You are still signed in. ${sentence(problem)}`, false];
  }
});

addEventListener("pageshow", (event) => event.persisted && look()); // back from another page, perhaps much later
addEventListener("hashchange", () => location.hash.startsWith("#sign-in=") && arrive());
arrive();
