"""For people and agents: reports, tokens, webhooks."""
