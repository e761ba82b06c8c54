"""The console: pages in which people see and change what the server holds.

It is a face like any other, and a client of v1: each number on a page comes from an operation of v1, and each change is
one, asked for with the rights of the person that is signed in. So the console shows and does nothing that v1 would
refuse.
"""
