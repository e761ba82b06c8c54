"""The jobs: functions over a Spark session, and commands.

Each is a command of ``qdo pipeline``.
"""
