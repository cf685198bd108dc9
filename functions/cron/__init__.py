"""Functions of the noun `cron`."""
