"""The server: sockets, the event loop, HTTP/1.1; and the WSGI application for other servers."""
