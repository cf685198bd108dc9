"""What a tag's program says, and when it is written anew."""
