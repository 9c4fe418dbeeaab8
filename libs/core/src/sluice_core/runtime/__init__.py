"""What makes a process a Sluice process: broker, stages, children, worker life."""
