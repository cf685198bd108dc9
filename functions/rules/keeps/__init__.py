"""Whether a result is kept: verdicts, noise, keep rules, retests."""
