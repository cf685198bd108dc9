"""A GPU whose driver says what a test wants, through a real helper process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from workers.slot import Device

GPU = Device("h:GPU-a", index=0, name="NVIDIA H200", vram_mb=1, uuid="GPU-a", driver="1", kind="gpu")

_HELPER = """
import json, sys, time
print("{}", flush=True)
for line in sys.stdin:
    said = json.loads(open(sys.argv[1]).read())
    time.sleep(said.pop("hang_s", 0))
    print(json.dumps(said), flush=True)
"""


class Driver:
    """Answers every sample with what was last said."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said.json"
        self._helper = folder / "helper.py"
        self._helper.write_text(_HELPER)
        self.says(memory_used_mb=100.0, processes={})

    @property
    def command(self) -> tuple[str, ...]:
        """For `Sampler(helper=...)`."""
        return (sys.executable, "-I", str(self._helper), str(self._said))

    def says(self, **sample: object) -> None:
        draft = self._said.with_suffix(".draft")
        draft.write_text(json.dumps(sample))
        draft.replace(self._said)
