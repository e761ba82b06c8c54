"""Small applications of Queuey, to begin one's own from.

No part of what is installed.
"""
