"""The examination that `sluice doctor` makes: jobs whose ends are known beforehand."""
