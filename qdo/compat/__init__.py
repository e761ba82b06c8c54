"""The worker of 2012 on the worker of today.

It has the class, the command line and the settings of 2012.
"""
