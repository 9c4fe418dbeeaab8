"""What every Sluice service shares, in three layers: runtime > adapters > domain."""
