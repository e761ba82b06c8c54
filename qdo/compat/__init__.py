"""The worker of 2012: its class, its command line and its settings, on the worker of today."""
