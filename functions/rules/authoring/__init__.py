"""How often a language model is asked, and what it costs."""
