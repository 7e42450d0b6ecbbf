"""What is damaged in a run is named and rebuilt: ``visterm repair``. See docs/reliability.md."""
