"""Crash reports, processed by as many workers as it takes."""
