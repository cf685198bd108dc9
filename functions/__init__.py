"""The function table: one file per function, `functions/<noun>/<verb>.py` is `noun::verb`."""
