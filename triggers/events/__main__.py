"""`python -P -m triggers.events` runs the events process."""

import sys

from functions.process.running import run
from triggers.events.serving import serve

if __name__ == "__main__":
    sys.exit(run("events", serve))
