"""pipeline::*: programmes that are drafted before their time."""
