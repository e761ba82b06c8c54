"""Tests of the services that tests use."""
