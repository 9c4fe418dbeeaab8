"""One file per group of commands; each only reads options, calls, and prints."""
