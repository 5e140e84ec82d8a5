"""What holds for every test."""

from hypothesis import settings

# No test may depend on the speed of the machine.
settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")
