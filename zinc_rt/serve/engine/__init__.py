"""The engine behind the HTTP: a thread that drives the models, and the streams of those who asked."""
