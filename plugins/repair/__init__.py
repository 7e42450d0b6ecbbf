"""What a run holds and what is damaged: ``visterm info`` and ``visterm repair``. See docs/reliability.md."""
