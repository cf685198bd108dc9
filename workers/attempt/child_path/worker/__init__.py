"""The older name of nightjar_report: `from worker.report import report`."""
