"""Whether a result can be trusted: noise, retests, retraction, audit."""
