"""The command line: `./nightjar COMMAND`."""
