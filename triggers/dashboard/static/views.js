// The views, by the name that stands in the address.

import { agents } from "./views/agents.js";
import { beliefs } from "./views/beliefs.js";
import { branches } from "./views/branches.js";
import { compare } from "./views/compare.js";
import { events } from "./views/events.js";
import { functions } from "./views/functions.js";
import { gpus } from "./views/gpus.js";
import { overview } from "./views/overview.js";
import { program } from "./views/program.js";
import { run } from "./views/run.js";
import { runs } from "./views/runs.js";
import { swarm } from "./views/swarm.js";

export const VIEWS = { overview, runs, run, compare, branches, swarm, beliefs, program, agents, gpus, events, functions };
export const TAG_VIEWS = ["overview", "runs", "branches", "swarm", "beliefs", "program", "agents"];
export const LAB_VIEWS = ["gpus", "events", "functions"];
