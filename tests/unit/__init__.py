"""Tests of one module each, without a server: the folders are those of the source."""
