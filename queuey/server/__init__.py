"""The server (sockets, event loop, HTTP/1.1), and the WSGI application."""
