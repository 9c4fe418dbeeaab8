"""The addresses, one module per group; each has `build(deps)`, which gives its blueprint."""
