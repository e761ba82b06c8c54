"""The wire: plain functions from a call to an answer, which know neither a framework nor an event loop."""
