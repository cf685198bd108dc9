// The change of a run, and a patch line by line.

import { isOfSwarm } from "./describe.js";
import { counted, h } from "./dom.js";
import { call } from "./lab.js";

const LINES = 3000;
const LONGEST = 2000; // characters of a line

// What a run changes on top of one of its parents, or of its tag's base: { diff, note }.
export async function changeOf({ e, diff }, against) {
  if (against === "base") return { diff, note: noteOn(diff, e) };
  try {
    const found = await call("/api/report/diff", { experiment_a: against, experiment_b: e.id });
    const isOfParent = found.diff === null && found.patch_b !== null;
    const note = found.diff_cut ?? (isOfParent ? `No patch of ${against} is known: the base shows the whole change.` : noteOn(found.diff, e, found.constants));
    return { diff: found.diff, note: [note, found.constants].filter(Boolean).join(" ") };
  } catch (problem) {
    return { diff: null, note: [problem.message, problem.hint].filter(Boolean).join(": ") };
  }
}

function noteOn(diff, e, constants = null) {
  if (diff) return "";
  const sets = constants === null && Object.keys(e.config_delta ?? {}).length > 0 ? "It sets constants." : "";
  return `${diff === "" ? "The code is the same." : isOfSwarm(e) ? "Its worker has the code." : `Only its commit is known: ${e.commit_sha}.`} ${sets}`;
}

// Shows a change that `changeOf` answers; null: it is not known yet.
export function change(found) {
  if (found === null) return [h("p", { class: "nothing" }, "Reading.")];
  return [found.diff ? h("pre", { class: "patch", tabindex: "0", role: "region", "aria-label": "change" }, patchLines(found.diff)) : null, found.note ? h("p", { class: "nothing" }, found.note) : null].filter(Boolean);
}

// The lines of a patch, each with its mark; of a long one the first.
export function patchLines(diff) {
  const lines = diff.replace(/\n$/, "").split("\n");
  const more = lines.length - LINES;
  return [
    ...lines.slice(0, LINES).map((line) => h("span", { class: kindOf(line) }, line.length > LONGEST ? `${line.slice(0, LONGEST)}… ${counted(line.length - LONGEST, "more character")}` : line)),
    more > 0 ? h("span", { class: "dim" }, counted(more, "more line")) : null,
  ];
}

// Which mark a line of a diff has.
function kindOf(line) {
  if (/^(diff |index |--- |\+\+\+ |new file|deleted file|similarity|rename )/.test(line)) return "file";
  return { "+": "added", "-": "removed", "@": "hunk" }[line[0]] ?? null;
}
