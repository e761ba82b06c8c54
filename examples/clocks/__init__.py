"""An example: every change of clocks in the world as an event.

Spark and workers process the events at once.
"""
