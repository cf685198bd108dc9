// The operator's form that changes one value of a tag's policy.

import { h } from "./dom.js";
import { ask } from "./actions.js";
import { call } from "./lab.js";

// A button that reads the policy and asks which value is to change; null for readers who are no operators.
export function policyAction(page, tag) {
  if (!page.isOperator) return null;
  return h("button", { type: "button", class: "action", click: () => open(page, tag) }, "Policy");
}

async function open(page, tag) {
  try {
    const { policy, version } = await call("/api/search/policy", { tag });
    const now = new Map(flat(policy));
    ask({
      title: `Change the policy of ${tag}?`,
      text: `One value changes, and the policy becomes version ${version + 1}. Decisions from then on follow it. Past verdicts stay.`,
      verb: "Change",
      inputs: [
        { name: "field", label: "Value", options: [...now].map(([name, value]) => `${name} = ${JSON.stringify(value)}`) },
        { name: "value", label: "New value, as JSON or a word" },
      ],
      path: "/api/search/set-policy",
      body: ({ field, value }) => ({ tag, policy: { [field.split(" = ")[0]]: read(value) }, expected_version: version }),
    });
  } catch ({ message, hint }) {
    page.problem(message, hint);
  }
}

// The values by their dotted names; tables that users fill, such as scheduler_params, are one value.
function flat(group, prefix = "") {
  return Object.entries(group).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0 ? flat(value, `${prefix}${name}.`) : [[prefix + name, value]]);
}

function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
