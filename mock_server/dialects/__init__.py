"""One file a dialect: the routes, words and quirks of one kind of server."""
