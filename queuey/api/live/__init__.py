"""Reads that wait: long polls and streams."""
