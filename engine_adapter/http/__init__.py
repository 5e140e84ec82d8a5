"""Servers that speak the OpenAI API over HTTP: the client that measures them."""
