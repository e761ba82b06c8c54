"""An example: every change of clocks in the world as an event, through Spark and through workers at once."""
