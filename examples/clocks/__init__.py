"""An example: every change of clocks in the world as events, through Spark and through workers at once."""
