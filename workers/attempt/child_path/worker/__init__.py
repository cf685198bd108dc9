"""The older name of the reporting module: `from worker.report import report`."""
