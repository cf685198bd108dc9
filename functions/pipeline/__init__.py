"""pipeline::*: programs that are drafted before their time."""
