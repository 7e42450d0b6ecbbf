"""How the tests run, and what the tests of all rooms and plug-ins share: modules in tests/."""

pytest_plugins = ("suite", "small_run", "problems", "crops")
