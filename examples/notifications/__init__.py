"""Notifications: each user of an application has a queue.

The user reads it in a browser, with a token of their own.
"""
