"""Reads what runs leave behind (report, JUnit file, exit code, output), as foreign data."""
