"""The outside world, one module per outside library; each maps its library's errors to ours."""
