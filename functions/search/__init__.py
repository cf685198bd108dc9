"""How a tag's search goes on, and what an agent could try next."""
