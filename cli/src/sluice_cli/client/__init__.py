"""The HTTP client: talking, following, saving. Knows the contract and no part of the server."""
