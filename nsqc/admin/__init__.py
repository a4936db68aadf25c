"""The admin server: nsqadmin's JSON API, nsqc's own, and the page that uses the latter."""
