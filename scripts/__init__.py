"""Programs for those who change Queuey. None of them is shipped."""
