"""A coding agent's command line that thinks nothing: `python pretending.py WHAT`, with its charter on standard input.

work      tries one idea with the charter's own commands, says what it cost, and exits
names     prints its words and the names in its environment, and exits
hang      says hello and is silent for ever, with children that have cut every tie
flood     prints without end
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path


def main(what: str, given: str) -> int:
    charter = Path(given).read_text() if given and what != "names" else sys.stdin.read()
    blocks = re.findall(r"^```bash\n(.*?)^```$", charter, re.M | re.S)
    print(f"hello, {len(charter)} characters", flush=True)
    match what:
        case "work":
            wait_for(work(charter, blocks), blocks)
        case "names":
            names = [os.environ[f"NIGHTJAR_{name}"] for name in ("URL", "TAG", "NAME")]
            print("told:", *sys.argv[2:], *names, flush=True)
        case "hang":
            for environment in (None, {"PATH": os.environ["PATH"]}):
                orphan = ["/bin/sh", "-c", "setsid sleep 98765 &"]
                subprocess.Popen(orphan, start_new_session=True, env=environment)
            time.sleep(98765)
        case "flood":
            while True:
                os.write(1, b"{" + b"x" * 65535)
    return 0


def work(charter: str, blocks: list[str]) -> str:
    """Steps 2 and 3 of the charter, with the next width; answers the experiment."""
    width = int(re.findall(r"^WIDTH = (\d+)", Path("train.py").read_text(), re.M)[0])
    for words in ("perl -pi", ".git/idea.json <<EOF", "experiment/submit"):
        (block,) = [block for block in blocks if words in block]
        block = block.replace("WIDTH = 48/WIDTH = 96", f"WIDTH = {width}/WIDTH = {width + 1}")
        block = re.sub(r'"parent_id":"[^"]+",', "", block)
        done = subprocess.run(["bash", "-c", block], check=True, capture_output=True, text=True)
    submitted: str = json.loads(done.stdout)["experiment_id"]
    return submitted


def wait_for(submitted: str, blocks: list[str]) -> None:
    """Step 4 of the charter."""
    (wait,) = [block for block in blocks if "until=finished" in block]
    wait = re.sub(r"experiment/[\w.-]+/wait", f"experiment/{submitted}/wait", wait)
    done = subprocess.run(["bash", "-c", wait], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["finished"], done.stdout
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 85}
    print(json.dumps({"type": "result", "subtype": "success", "total_cost_usd": 0.25, "usage": usage}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
