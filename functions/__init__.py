"""The functions of the table, with their rules and views: one room for each subject."""
