"""`python -P -m triggers.events` runs the events process."""

import sys

from triggers.events.serving import main

if __name__ == "__main__":
    sys.exit(main())
