"""The wire: plain functions from a call to an answer.

They know no framework and no event loop.
"""
