"""References and data that several tests share."""
