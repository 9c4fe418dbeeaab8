"""One machine: its data folder, its embedded parts, and how an instance is found and started."""
