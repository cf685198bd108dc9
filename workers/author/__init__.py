"""The author asks a language model to fill in a form. No other code of Nightjar talks to one."""
