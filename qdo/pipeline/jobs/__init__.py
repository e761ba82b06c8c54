"""Jobs that ship: each a function over a Spark session, and a command below ``qdo pipeline``."""
