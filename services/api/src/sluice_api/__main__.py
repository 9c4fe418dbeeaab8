"""`python -m sluice_api` serves."""

from __future__ import annotations

from sluice_api.serve import main

if __name__ == "__main__":
    main()
