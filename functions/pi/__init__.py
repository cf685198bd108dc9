"""What language models write: the program of a tag, and its next draft."""
