"""The jobs: each is a function over a Spark session, and a command of ``qdo pipeline``."""
