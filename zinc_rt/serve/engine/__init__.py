"""The inference engine of the server: a thread that drives the models, and the streams of the clients."""
