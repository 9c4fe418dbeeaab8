"""One middleware per file; the order is given where the broker is built, time limit last."""
