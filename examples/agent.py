"""A scripted research agent: it follows program.md over HTTP, with its own git clone and no language model.

    python examples/agent.py --url http://127.0.0.1:3111 --tag demo --repo PATH/TO/CLONE --name alice --runs 8

It knows nothing of Nightjar but its HTTP functions. Where a coding agent would think, `proposer.py` draws: it changes
one top-level constant of train.py at a time. The clone is the agent's own: its branch is reset with every discard.
A lab that asks for a token is sent the one in NIGHTJAR_TOKEN. NIGHTJAR_URL, NIGHTJAR_TAG and NIGHTJAR_NAME, which
`nightjar agent` sets, are the defaults of the options of those names.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx

sys.path.append(str(Path(__file__).parent))  # `python -P` leaves the script's own folder out
from proposer import (
    Config,
    Knowledge,
    Past,
    ProposedChange,
    SearchStrategy,
    propose,
    read_constants,
    set_constants,
)

SCRIPT = "train.py"
WAIT_S = 50  # the lab holds no request for longer
REMEMBERED = 500  # experiments of the tag that a proposal is drawn from

Json = dict[str, Any]
Say = Callable[..., None]


# ---- The loop ----------------------------------------------------------------------------------------------


@dataclass
class BranchBase:
    """The experiment that the branch builds on, and its commit in the lab."""

    experiment_id: str | None
    commit_sha: str
    here: str
    """The commit in this clone. It differs if it was rebuilt from a patch."""


class ScriptedAgent:
    """One agent of a tag, at work in its own clone."""

    def __init__(self, lab: LabApi, clone: Clone, tag: str, name: str, rng: random.Random, say: Say) -> None:
        self.lab, self.clone, self.tag, self.name, self.rng, self.say = lab, clone, tag, name, rng, say
        self.base_commit = ""
        self.standing = BranchBase(None, "", "")

    def work(self, runs: int | None) -> None:
        """Join the tag, finish older runs, then try one idea after another."""
        self.join()
        self.finish_what_is_open()
        for number in count(1) if runs is None else range(1, runs + 1):
            self.try_one(f"{number}" if runs is None else f"{number}/{runs}")
        self.say("done", "all runs are finished", best=self.best())

    def join(self) -> None:
        """Make sure that the tag exists, and check out its base commit."""
        mine = self.clone.shared_commit()
        try:
            tag = self.lab.post("/api/experiment/setup", {"tag": self.tag, "base_commit": mine})["tag"]
        except RequestRefused as refused:
            if refused.status != 409 or "existing" not in refused.problem:
                raise
            tag = refused.problem["existing"]
        self.base_commit = self.clone.found(tag["base_commit"] or mine)
        branch = f"autoresearch/{self.tag}-{self.name}"
        self.clone.start_branch(branch, self.base_commit)
        self.standing = BranchBase(None, self.base_commit, self.base_commit)
        self.say("joined", f"tag {self.tag} on {branch}, base {self.base_commit[:7]}", base=self.base_commit)

    def finish_what_is_open(self) -> None:
        """Go on waiting for runs that an earlier start of this agent has left."""
        brief: Json = self.lab.post("/api/report/brief", {"tag": self.tag, "agent": self.name})
        for line in brief["open_experiments"]:
            experiment_id = line["experiment_id"]
            if self.lab.get(f"/api/experiment/{experiment_id}")["experiment"]["agent"] != self.name:
                continue  # an experiment that names no agent is listed too
            if line["status"] == "registered":  # cut off before it was queued
                self.lab.post("/api/gpu/train", {"experiment_id": experiment_id})
            self.say("resumed", f"{experiment_id} is still open: waiting for it", experiment_id=experiment_id)
            self.judge(self.wait(experiment_id), line["commit_sha"])

    def try_one(self, number: str) -> None:
        """One turn: choose, edit, commit, submit, wait, keep or reset."""
        self.stand_on_best()
        direction, known = self.direction(), self.knowledge()
        submitted = self.submit_idea(known, propose(known, direction, self.rng))
        experiment_id, commit = submitted["experiment_id"], self.clone.head()
        queue = submitted["queue"]
        where = f"number {queue['position']} in the queue" if queue["position"] else "a worker has it"
        if not queue["workers"]:
            where = submitted["next"]
        if submitted["duplicate_of"]:
            where += f"; the same as {submitted['duplicate_of']}, which another agent thought of just now"
        self.say(
            "submitted",
            f"run {number} is {experiment_id}: {where}",
            experiment_id=experiment_id,
            commit_sha=commit,
        )
        self.judge(self.wait(experiment_id), commit)

    def submit_idea(self, known: Knowledge, idea: ProposedChange) -> Json:
        """Change the script accordingly, commit, and submit it."""
        self.say(
            "idea", f"{idea.description} ({idea.category})", changes=idea.changes, category=idea.category
        )
        self.clone.write(SCRIPT, set_constants(self.clone.read(SCRIPT), idea.changes))
        commit = self.clone.commit(f"{idea.description}\n\n{idea.hypothesis}\n")
        try:
            return self.submit(
                f"{self.tag}-{self.name}-{commit}",  # the same commit again is the same experiment
                description=idea.description,
                hypothesis=idea.hypothesis,
                category=idea.category,
                parents=self.parents_of(idea),
                config=known.with_changes(idea.changes),
            )
        except RequestRefused as refused:
            if "consecutive_crashes" not in refused.problem:
                raise
            self.say("note", f"{refused.detail}: running the best unchanged")
            return self.submit_best_again()

    def submit_best_again(self) -> Json:
        """Submit the best unchanged, or the base commit: after many crashes a lab takes nothing else."""
        best = self.best()
        name = best["experiment_id"] if best else None
        self.stand_on(name, best["commit_sha"] if best else self.base_commit)
        return self.submit(
            uuid.uuid4().hex,  # a run of its own, whatever ran before
            description=f"{name or 'the base commit'} unchanged",
            hypothesis="It ran before: if it fails now, it is not the ideas that are broken.",
            category="other",
            parents=[name] if name else [],
            config=(self.lab.get(f"/api/experiment/{name}")["experiment"]["config_delta"] or {})
            if name
            else {},
        )

    def submit(
        self,
        key: str,
        *,
        description: str,
        hypothesis: str,
        category: str,
        parents: list[str],
        config: Config,
    ) -> Json:
        """Submit the commit with its whole patch, so that its worker does not need this clone."""
        return self.lab.post(
            "/api/experiment/submit",
            {
                "tag": self.tag,
                "hypothesis": hypothesis,
                "category": category,
                "commit_sha": self.clone.head(),
                "diff": self.clone.diff_since(self.base_commit),
                "diff_summary": f"{SCRIPT}: {description}",
                "description": description,
                "parent_ids": parents,
                "agent": self.name,
                "config_delta": dict(config),
            },
            key=key,
        )

    def wait(self, experiment_id: str) -> Json:
        """Ask until it is finished; each request ends within 50 seconds."""
        said = ""
        while True:
            path = f"/api/experiment/{experiment_id}/wait?timeout={WAIT_S}&until=finished"
            outcome = self.lab.get(path, timeout_s=WAIT_S + 15)
            if outcome["finished"]:
                return outcome
            if outcome["status"] != said:
                said = outcome["status"]
                self.say(
                    "waiting", f"{experiment_id} is {said}. {outcome['next']}", experiment_id=experiment_id
                )

    def judge(self, outcome: Json, commit: str) -> None:
        """Stay on a kept commit; return to the best from any other."""
        experiment_id, status = outcome["experiment_id"], outcome["status"]
        value = f" at {outcome['val_bpb']:.6f}" if outcome["val_bpb"] is not None else ""
        versus = f" ({outcome['delta']:+.6f})" if outcome["delta"] else ""
        why = f": {outcome['error'].splitlines()[0]}" if outcome["error"] else ""
        until = ", until it has run again" if outcome["trust"] == "provisional" else ""
        self.say("finished", f"{experiment_id}: {status}{value}{versus}{until}{why}", **outcome)
        if outcome["status"] == "keep" and self.clone.has(commit):
            self.clone.reset(commit)
            self.standing = BranchBase(outcome["experiment_id"], commit, commit)
        else:
            self.return_to(outcome["base_commit_sha"])

    # -- what the lab knows

    def best(self) -> Json | None:
        try:
            found: Json = self.lab.post("/api/experiment/best", {"tag": self.tag})["best"]
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            return None
        return found

    def direction(self) -> SearchStrategy:
        found = self.lab.post("/api/search/suggest", {"tag": self.tag})
        strategy = found["strategy"]
        self.say("direction", f"{strategy['mode']} at {strategy['temperature']:g}: {found['suggestions'][0]}")
        return SearchStrategy(
            strategy["mode"],
            strategy["temperature"],
            strategy["explore_ratio"],
            found["underexplored_categories"],
            found["high_yield_categories"],
        )

    def history(self, **which: Any) -> list[Json]:
        found: list[Json] = self.lab.post("/api/experiment/history", {"tag": self.tag, **which})[
            "experiments"
        ]
        return found

    def knowledge(self) -> Knowledge:
        """The script now and at the tag's base, and the experiments so far."""
        base = read_constants(self.clone.show(self.base_commit, SCRIPT))
        near = self.lab.post("/api/experiment/near-misses", {"tag": self.tag})["near_misses"]
        return Knowledge(
            base={name: constant.value for name, constant in base.items()},
            standing=read_constants(self.clone.read(SCRIPT)),
            past=[
                Past(e["experiment_id"], e["status"], e["config_delta"], e["category"], built_on(e))
                for e in self.history(limit=REMEMBERED)
            ],
            near_misses=[n["experiment_id"] for n in near],
        )

    def parents_of(self, idea: ProposedChange) -> list[str]:
        built_on = [self.standing.experiment_id] if self.standing.experiment_id else []
        return list(dict.fromkeys([*built_on, *idea.parents]))

    # -- where the branch stands

    def stand_on_best(self) -> None:
        """Check out the best of all agents. The experiment under this branch may have been demoted."""
        best, mine = self.best(), self.standing.experiment_id
        if best is None or best["experiment_id"] == mine:
            return
        if mine is not None and self.lab.get(f"/api/experiment/{mine}")["experiment"]["trust"] == "demoted":
            self.say("demoted", f"{mine} did not bear out when it ran again", experiment_id=mine)
        self.return_to(best["commit_sha"])

    def return_to(self, commit: str | None) -> None:
        """Reset to a commit. If this clone does not have it, reset to the best, rebuilt from its patch."""
        best = self.best()
        newest: str = best["commit_sha"] if best else self.base_commit
        goal = commit if commit is not None and self.clone.has(commit) else newest
        self.stand_on(best["experiment_id"] if best and goal == newest else None, goal)

    def stand_on(self, experiment_id: str | None, commit: str) -> None:
        """Reset to an experiment's commit, rebuilt from its patch if necessary; stay if that fails."""
        here: str | None = commit
        if commit == self.standing.commit_sha:
            here = self.standing.here
        elif not self.clone.has(commit):
            here = self.rebuilt(experiment_id)
        if here is not None:
            self.standing = BranchBase(experiment_id, commit, here)
            self.say("standing", f"on {experiment_id or 'the base'} ({commit[:7]})", commit_sha=commit)
        else:
            self.say(
                "note", f"{experiment_id} cannot be rebuilt here: staying on {self.standing.commit_sha[:7]}"
            )
        self.clone.reset(self.standing.here)

    def rebuilt(self, experiment_id: str | None) -> str | None:
        """Commit another agent's experiment: the tag's base commit with the stored patch. None if that fails."""
        patch = self.lab.get(f"/api/experiment/{experiment_id}")["diff"] if experiment_id else None
        if patch is None:
            return None
        self.clone.reset(self.base_commit)
        try:
            self.clone.apply(patch)
        except GitError as problem:
            self.say("note", f"{problem}")
            return None
        return self.clone.commit(f"Rebuild {experiment_id} from its patch")


def built_on(experiment: Json) -> tuple[str, ...]:
    """The experiments that it builds on. On a trace, a failed parent does not count."""
    if not experiment["selection"]:
        return tuple(experiment["parent_ids"])
    base = experiment["selection"]["base_experiment_id"]
    return (base,) if base else ()


# ---- The lab over HTTP -------------------------------------------------------------------------------------


class RequestRefused(Exception):
    """The lab answered with an error that a retry does not mend."""

    def __init__(self, status: int, problem: Json) -> None:
        self.status, self.problem = status, problem
        self.detail = str(problem.get("detail", "no reason given"))
        hint = f"\n  -> {problem['hint']}" if problem.get("hint") else ""
        super().__init__(f"{status}: {self.detail}{hint}")


class Unreachable(Exception):
    """The lab did not answer for a long time."""


class LabApi:
    """JSON requests that are repeated, with the same Idempotency-Key, until the lab answers."""

    def __init__(self, http: httpx.Client, say: Say, patience_s: float) -> None:
        self.http, self.say, self.patience_s = http, say, patience_s

    def get(self, path: str, timeout_s: float = 30) -> Json:
        return self._ask("GET", path, timeout=timeout_s)

    def post(self, path: str, body: Json, key: str | None = None, timeout_s: float = 30) -> Json:
        headers = {"Idempotency-Key": key} if key else {}
        return self._ask("POST", path, json=body, headers=headers, timeout=timeout_s)

    def _ask(self, method: str, path: str, **request: Any) -> Json:
        give_up = time.monotonic() + self.patience_s
        for pause in backoff():
            try:
                response = self.http.request(method, path, **request)
            except httpx.TransportError as problem:
                why = f"{self.http.base_url}: {problem or type(problem).__name__}"
            else:
                if response.is_success:
                    answer: Json = response.json()
                    return answer
                refusal = problem_of(response)
                later = response.headers.get("Retry-After", "")
                if response.status_code not in (429, 502, 503, 504) and not later:
                    raise RequestRefused(response.status_code, refusal)
                why = f"{response.status_code}: {refusal.get('detail', response.reason_phrase)}"
                pause = max(pause, float(later) if later.isdigit() else 0.0)
            if pause > self.patience_s:
                raise Unreachable(f"{why}; it asks to be left alone for {pause:.0f} s: start me again then")
            if time.monotonic() + pause > give_up:
                raise Unreachable(f"{why}; gave up after {self.patience_s:.0f} s")
            self.say("retry", f"{why}; asking again in {pause:.1f} s")
            time.sleep(pause)
        raise AssertionError("backoff never ends")


def backoff() -> Iterator[float]:
    """Seconds between two tries: doubling up to 30, with some chance so that agents do not ask in step."""
    for doubled in count():
        yield min(0.5 * 2 ** min(doubled, 6), 30) * random.uniform(0.7, 1.0)


def problem_of(response: httpx.Response) -> Json:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# ---- The clone ---------------------------------------------------------------------------------------------


class GitError(Exception):
    """A git command failed."""


class Clone:
    """The agent's own git clone."""

    def __init__(self, path: Path, author: str) -> None:
        self.path = path
        self.settings = {
            "user.name": author,
            "user.email": f"{author}@agents.invalid",
            "commit.gpgSign": "false",
            "core.autocrlf": "false",
            "diff.noprefix": "false",
            "diff.mnemonicPrefix": "false",
        }

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        """The output of a git command, independent of the user's settings."""
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        done = subprocess.run(
            ["git", "-C", str(self.path), *options, *arguments],
            input=stdin.encode() if stdin is not None else b"",
            env={n: v for n, v in os.environ.items() if not n.startswith(("GIT_", "NIGHTJAR_"))}
            | {"GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise GitError(f"git {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").strip()

    def has(self, commit: str) -> bool:
        return self._succeeds("cat-file", "-e", commit + "^{commit}")

    def shared_commit(self) -> str:
        """The head of the cloned branch, which others have, too."""
        upstream = "refs/remotes/origin/HEAD"
        return self.git("rev-parse", upstream if self._succeeds("rev-parse", upstream) else "HEAD").strip()

    def found(self, commit: str) -> str:
        """A commit's full hash; a missing commit is fetched."""
        if not self.has(commit):
            self.git("fetch", "--quiet", "--all")
        if not self.has(commit):
            raise GitError(f"commit {commit} is not in {self.path}: clone the repository of the workers")
        return self.git("rev-parse", commit + "^{commit}").strip()

    def start_branch(self, branch: str, base: str) -> None:
        """Check out a branch at its base. Uncommitted work of others is an error."""
        ours = self.git("branch", "--show-current").strip() == branch
        if not ours and self.git("status", "--porcelain", "--untracked-files=no"):
            raise GitError(
                f"{self.path} has uncommitted changes: commit them, or give the agent a clone of its own"
            )
        self.git("checkout", "--quiet", "--force", "-B", branch, base)

    def commit(self, message: str) -> str:
        """Commit tracked files; answers the hash."""
        self.git("commit", "--quiet", "--all", "--no-verify", "--allow-empty", "--message", message)
        return self.head()

    def reset(self, commit: str) -> None:
        self.git("reset", "--quiet", "--hard", commit)

    def apply(self, patch: str) -> None:
        if patch:
            self.git("apply", "--index", "--binary", "--whitespace=nowarn", "-", stdin=patch)

    def diff_since(self, commit: str) -> str:
        return self.git("diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", commit, "HEAD")

    def show(self, commit: str, path: str) -> str:
        return self.git("show", f"{commit}:{path}")

    def read(self, path: str) -> str:
        return (self.path / path).read_bytes().decode()  # not read_text: it would change the line ends

    def write(self, path: str, text: str) -> None:
        (self.path / path).write_bytes(text.encode())

    def _succeeds(self, *arguments: str) -> bool:
        try:
            self.git(*arguments)
        except GitError:
            return False
        return True


# ---- The command -------------------------------------------------------------------------------------------


def speaker(name: str, as_json: bool) -> Say:
    """One line per step: for people, or with --json for programs."""

    def say(event: str, text: str, **facts: Any) -> None:
        if as_json:
            line = json.dumps({"event": event, "agent": name, "text": text, **facts})
        else:
            line = f"{time.strftime('%H:%M:%S')} {name:>8}  {event:<10} {text}"
        print(line, flush=True)

    return say


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    url, tag, name = (os.environ.get(f"NIGHTJAR_{word}", "").strip() for word in ("URL", "TAG", "NAME"))
    parser.add_argument(
        "--url", default=url or "http://127.0.0.1:3111", help="the lab (default: %(default)s)"
    )
    parser.add_argument(
        "--tag", default=tag, required=not tag, help="the line of research; created if it does not exist"
    )
    parser.add_argument("--repo", required=True, type=Path, help="a git clone that the agent may reset")
    parser.add_argument(
        "--name", default=name, required=not name, help="who the experiments are by: one name per agent"
    )
    parser.add_argument("--runs", type=int, help="how many runs to do (default: until Ctrl-C)")
    parser.add_argument("--seed", type=int, help="makes the proposals repeatable")
    parser.add_argument(
        "--patience", type=float, default=600, help="seconds without the lab (default: %(default)g)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser.parse_args()


def credentials() -> dict[str, str]:
    """The header that a lab with tokens asks for."""
    token = os.environ.get("NIGHTJAR_TOKEN", "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def main() -> int:
    given = arguments()
    say = speaker(given.name, given.json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # The name is mixed in, so that two agents with one seed have different ideas.
    rng = random.Random(f"{given.seed}/{given.name}" if given.seed is not None else None)
    clone = Clone(given.repo, given.name)
    try:
        # No proxy of the environment leads to this machine itself.
        elsewhere = httpx.URL(given.url).host not in ("127.0.0.1", "::1", "localhost")
        with httpx.Client(base_url=given.url, headers=credentials(), trust_env=elsewhere) as http:
            lab = LabApi(http, say, given.patience)
            ScriptedAgent(lab, clone, given.tag, given.name, rng, say).work(given.runs)
    except KeyboardInterrupt:
        say("stopped", "started again under this name, it goes on where it was")
    except (RequestRefused, Unreachable, GitError, LookupError, OSError) as problem:
        print(f"{given.name}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
