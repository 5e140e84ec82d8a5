"""Setting up: the virtual environment, the bundled model, and what `tune doctor` finds."""
