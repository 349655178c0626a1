"""The quality report: measured, kept in the file it is about, and shown as a table, JSON or a page."""
